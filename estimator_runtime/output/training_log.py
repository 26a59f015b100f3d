"""The logger for training messages, a child of TensorFlow's logger.

A program that enables TensorFlow's log lines, by `tf.compat.v1.logging.set_verbosity`
or otherwise, sees the runtime's lines among them. Log only INFO here, because that
verbosity may silence it. Log warnings to the logger of their module, which it does not
affect.
"""

import logging

# Found by name, because the launching half must not import TensorFlow.
TRAINING_LOG = logging.getLogger("tensorflow.estimator_runtime")
