"""`MonitoredTrainingSession` of programs that train without an Estimator."""

import functools
import types

from estimator_runtime.patching.table import late


def use_runtime_session(_module: types.ModuleType) -> None:
    """Make `tf.compat.v1.train.MonitoredTrainingSession` that of this package.

    In TensorFlow 1 mode a program has it as `tf.train.MonitoredTrainingSession`. The
    options of `estimator-runtime run` then apply to the program, and it saves a
    checkpoint when it is told to stop. TensorFlow's own modules keep the original.
    """
    import tensorflow.compat.v1 as tf1

    # Imported late, because most programs do not use it.
    ours = late("session.monitored_training_session:MonitoredTrainingSession")
    stock = tf1.train.MonitoredTrainingSession
    tf1.train.MonitoredTrainingSession = functools.wraps(stock)(ours)
