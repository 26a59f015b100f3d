"""Names that libraries for Estimators use, and TensorFlow or Python moved since.

tf-slim 1.1.0, tensorflow-gan 2.1.0 and adanet 0.9.0 are the last releases, of 2020 and
2021. They look the names up when their functions are called, so they can be added once
the library is imported.
"""

import sys
from types import ModuleType

import tensorflow as tf
from tensorflow.python.checkpoint import graph_view
from tensorflow.python.layers import normalization

from estimator_runtime.tf_internals import former_names


def provide_moved_names(module: ModuleType) -> None:
    """Add what tf-slim misses, in TensorFlow 1 mode and outside of it.

    tf-slim stands for `layers`, `slim`, `framework`, `metrics` and `losses` of
    `tf.contrib`. TensorFlow's own module of batch normalization looks for its layers in
    `tf_keras.legacy_tf_layers`, which is not there; `tf.layers` has them.
    """
    former_names.restore_private_names(module)
    layer = tf.compat.v1.layers.BatchNormalization
    vars(normalization).update(BatchNormalization=layer, BatchNorm=layer)


def provide_tracking(_module: ModuleType) -> None:
    """Provide `graph_view` of `tensorflow.python.training.tracking`, for adanet."""
    name = "tensorflow.python.training.tracking"
    tracking = ModuleType(name, "Stands for a package that TensorFlow has moved.")
    vars(tracking)["graph_view"] = graph_view
    sys.modules.setdefault(name, tracking)
