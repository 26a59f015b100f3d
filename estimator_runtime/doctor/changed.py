"""What TensorFlow 2 has under a name of TensorFlow 1, and works another way.

These are some that a script can be read for: with them it finds every name, and then
trains otherwise than it did, or fails in its midst; with stock TensorFlow 2.15 too.
"""

_SUMMARIES = tuple(
    f"tensorflow.summary.{each}"
    for each in ("audio", "histogram", "image", "scalar", "text")
)
_WRITER = "tensorflow.summary.create_file_writer"
_DROPOUT = "tensorflow.nn.dropout"
# Methods that datasets of TensorFlow 1 have.
_METHODS = ("make_initializable_iterator", "make_one_shot_iterator")


def find(uses):
    """Give what a script may take for that of TensorFlow 1.

    Args:
        uses: The `program.Uses` of the script.

    Returns:
        Tuples (line, what stands there, how it is different, what to write in its
        place), in the order of the lines; names by their whole path.
    """
    return sorted([*_summaries(uses), *_dropout(uses), *_iterators(uses)])


def _summaries(uses):
    if _WRITER in uses.names:  # then they are meant as they are
        return
    for name in _SUMMARIES:
        if name in uses.names:
            of_v1 = name.replace("tensorflow", "tensorflow.compat.v1")
            difference = "writes nothing in a model_fn, where it has no writer"
            yield uses.names[name], name, difference, of_v1


def _dropout(uses):
    if _DROPOUT in uses.by_position:
        yield (
            uses.by_position[_DROPOUT],
            f"{_DROPOUT}(x, p)",
            "drops p of x, where that of TensorFlow 1 keeps it",
            "rate=, to be clear",
        )


def _iterators(uses):
    datasets = "tensorflow.data.", "tensorflow.compat.v1.data."
    is_new, is_old = (
        any(f"{name}.".startswith(each) for name in uses.names) for each in datasets
    )
    if is_old or not is_new or "tensorflow.compat.v1" in uses.names:
        return
    for method in _METHODS:
        if method in uses.methods:
            yield (
                uses.methods[method],
                f".{method}()",
                "is no method of a dataset of TensorFlow 2",
                f"tensorflow.compat.v1.data.{method}(dataset), or return the dataset "
                "itself from the input_fn",
            )
