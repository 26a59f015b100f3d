"""`MonitoredTrainingSession` of programs that train without an Estimator."""

import functools
import importlib
import types
from typing import Any

_OURS = "estimator_runtime.session.monitored_training_session"


def use_runtime_session(_module: types.ModuleType) -> None:
    """Make `tf.compat.v1.train.MonitoredTrainingSession` that of this package.

    In TensorFlow 1 mode a program has it as `tf.train.MonitoredTrainingSession`. The
    options of `estimator-runtime run` then apply to the program, and it saves a
    checkpoint when it is told to stop. TensorFlow's own modules keep the original.
    """
    import tensorflow.compat.v1 as tf1

    stock = tf1.train.MonitoredTrainingSession

    @functools.wraps(stock)
    def MonitoredTrainingSession(*args: Any, **kwargs: Any) -> Any:
        # Imported late, because most programs do not use it.
        ours = importlib.import_module(_OURS)
        return ours.MonitoredTrainingSession(*args, **kwargs)

    tf1.train.MonitoredTrainingSession = MonitoredTrainingSession
