"""Names that tf-slim 1.1.0 uses and TensorFlow moved or removed since.

tf-slim stands for `layers`, `slim`, `framework`, `metrics` and `losses` of
`tf.contrib`. Its last release is of 2020. It looks the names up when its functions are
called, so they can be added once it is imported.
"""

import importlib
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.python.layers import normalization

tf1 = tf.compat.v1
# By the module in which tf-slim looks for them.
_MOVED: dict[str, dict[str, Any]] = {
    "tensorflow.python.framework.ops": {
        "IndexedSlices": tf.IndexedSlices,
        "Tensor": tf.Tensor,
    },
    "tensorflow.python.ops.array_ops": {"stack": tf.stack, "unstack": tf.unstack},
    "tensorflow.python.ops.control_flow_ops": {
        "Assert": tf1.Assert,
        "case": tf1.case,
        "cond": tf1.cond,
        "while_loop": tf1.while_loop,
    },
    # It was a function that made the variable which the scope asks for.
    "tensorflow.python.ops.variable_scope": {"variable": tf1.Variable},
}


def provide_moved_names(_module: ModuleType) -> None:
    """Add the names where they are missing.

    TensorFlow's own module of batch normalization looks for its layers in
    `tf_keras.legacy_tf_layers`, which is not there; `tf.layers` has them.
    """
    for module_name, names in _MOVED.items():
        module = importlib.import_module(module_name)
        for name, value in names.items():
            if not hasattr(module, name):
                setattr(module, name, value)
    layer = tf1.layers.BatchNormalization
    vars(normalization).update(BatchNormalization=layer, BatchNorm=layer)
