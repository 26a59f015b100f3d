"""Names that tf-slim 1.1.0 uses and TensorFlow moved or removed since.

tf-slim stands for `layers`, `slim`, `framework`, `metrics` and `losses` of
`tf.contrib`. Its last release is of 2020. It looks the names up when its functions are
called, so they can be added once it is imported.
"""

from types import ModuleType

import tensorflow as tf
from tensorflow.python.layers import normalization

from estimator_runtime.compat.tf1 import moved


def provide_moved_names(module: ModuleType) -> None:
    """Add the names where they are missing, in TensorFlow 1 mode and outside of it.

    TensorFlow's own module of batch normalization looks for its layers in
    `tf_keras.legacy_tf_layers`, which is not there; `tf.layers` has them.
    """
    moved.restore_private_names(module)
    layer = tf.compat.v1.layers.BatchNormalization
    vars(normalization).update(BatchNormalization=layer, BatchNorm=layer)
