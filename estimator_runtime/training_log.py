"""The runtime's part of the log in which TensorFlow says what a training does.

A program that asks for TensorFlow's lines, by `tf.compat.v1.logging.set_verbosity` or
otherwise, sees the runtime's among them. Only INFO belongs here, because that verbosity
may silence it. Warnings go to the logger of their module, which it does not reach.
"""

import logging

# By its name: the launching half must not import TensorFlow.
TRAINING_LOG = logging.getLogger("tensorflow.estimator_runtime")
