"""What TensorFlow 2 has under a name of TensorFlow 1, and is something else.

A script that uses it can be parsed, finds every name, and then trains otherwise than it
did, or fails in its midst. This is so with stock TensorFlow 2.15 too.
"""

_SUMMARIES = ("audio", "histogram", "image", "scalar", "text")
_OF_KERAS = (
    "losses.mean_squared_error",
    "metrics.mean_absolute_error",
    "metrics.mean_squared_error",
)

# The name to what is different.
_NAMES = {
    **{
        f"tensorflow.summary.{each}": "writes nothing in a model_fn, where it has no "
        "writer"
        for each in _SUMMARIES
    },
    **{
        f"tensorflow.{each}": "is the function of Keras: it gives a value for each "
        "example"
        for each in _OF_KERAS
    },
}
# Methods that datasets of TensorFlow 1 have.
_METHODS = ("make_initializable_iterator", "make_one_shot_iterator")


def find(uses):
    """Give what a script may take for that of TensorFlow 1.

    Args:
        uses: The `program.Uses` of the script.

    Yields:
        (line, what stands there, how it is different, what to write in its place).
    """
    for name, line in uses.names.items():
        if name in _NAMES:
            shown = name.replace("tensorflow.", "tf.")
            of_v1 = name.replace("tensorflow.", "tf.compat.v1.")
            yield line, shown, _NAMES[name], of_v1
    # Under tensorflow.compat.v1 they are those of TensorFlow 1.
    is_new = "tensorflow.compat.v1" not in uses.names
    for method in _METHODS:
        if is_new and method in uses.methods:
            yield (
                uses.methods[method],
                f".{method}()",
                "is no method of a dataset of TensorFlow 2",
                f"tf.compat.v1.data.{method}(dataset), or return the dataset itself "
                "from the input_fn",
            )
