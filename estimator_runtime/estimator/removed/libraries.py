"""Names that libraries for Estimators use, and TensorFlow has moved since.

tf-slim 1.1.0 and adanet 0.9.0 are the last releases, of 2020 and 2021. They look the
names up when their functions are called, so they can be added once the library is
imported.
"""

import sys
from types import ModuleType

import tensorflow as tf
from tensorflow.python.checkpoint import graph_view
from tensorflow.python.layers import normalization


def provide_batch_normalization(_module: ModuleType) -> None:
    """Add the layers of batch normalization, which tf-slim uses, to TensorFlow's own.

    TensorFlow's module looks for them in `tf_keras.legacy_tf_layers`, which is not
    there; `tf.layers` has them.
    """
    layer = tf.compat.v1.layers.BatchNormalization
    vars(normalization).update(BatchNormalization=layer, BatchNorm=layer)


def provide_tracking(_module: ModuleType) -> None:
    """Provide `graph_view` of `tensorflow.python.training.tracking`, for adanet."""
    name = "tensorflow.python.training.tracking"
    tracking = ModuleType(name, "Stands for a package that TensorFlow has moved.")
    vars(tracking)["graph_view"] = graph_view
    sys.modules.setdefault(name, tracking)
