"""What is gone for good: it can be imported, raises when it is used, and says why."""

from typing import Any

from estimator_runtime.errors import CompatibilityError

_TREES = "use the package ydf or TensorFlow Decision Forests"
_TFIO = "use the package tensorflow-io"
# What to use in place of ops of libraries in C++, by the folder of `tf.contrib`.
INSTEAD = {
    "bigtable": _TFIO,
    "boosted_trees": _TREES,
    "cloud": f"use BigQuery's client library, or {_TFIO.removeprefix('use ')}",
    "factorization": "use the package implicit for WALS",
    "ffmpeg": _TFIO,
    "fused_conv": "use tf.nn.conv2d, tf.nn.bias_add and tf.nn.relu",
    "hadoop": _TFIO,
    "ignite": _TFIO,
    "image": "use scipy",
    "input_pipeline": "use tf.data",
    "kafka": _TFIO,
    "kinesis": _TFIO,
    "libsvm": "use sklearn.datasets.load_svmlight_file",
    "memory_stats": "use tf.config.experimental.get_memory_info",
    "periodic_resample": "use tf.reshape and tf.transpose",
    "remote_fused_graph": "use tf.lite",
    "rpc": "use grpc in a tf.py_func",
    "tensor_forest": _TREES,
    "tensorrt": "use TensorRT itself, by ONNX and the package tf2onnx",
    "text": "use tf.keras.preprocessing.sequence.skipgrams",
}
# The folders that hold nothing else.
FOLDERS = frozenset(INSTEAD) - {"factorization", "image", "text"}


def gone(name: str, remedy: str = "no TensorFlow since has it") -> Any:
    """Return a class that raises an error when it is called, and that has subclasses.

    Args:
        name: What the error calls it.
        remedy: What to use in its place.
    """

    def __new__(cls: type, *_args: object, **_kwargs: object) -> Any:
        raise CompatibilityError(f"{name} is gone from TensorFlow: {remedy}")

    return type(name.rpartition(".")[2], (), {"__new__": __new__})
