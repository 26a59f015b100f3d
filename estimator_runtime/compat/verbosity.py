"""The level that a program gives TensorFlow's log holds for this package's log too."""

import logging


def follow_tensorflow(tensorflow):
    """Make TensorFlow's logger the parent of this package's.

    Estimator programs ask for INFO by `tf.compat.v1.logging.set_verbosity`. Then they
    are shown what Estimators log of a training, and without this not what the runtime
    does: how many steps run in a call, what a checkpoint has cost. A level and handlers
    that a program gives to the logger `estimator_runtime` itself still win.
    """
    # Names would make the root logger the parent, and nothing else chooses one.
    logging.getLogger("estimator_runtime").parent = tensorflow.get_logger()
