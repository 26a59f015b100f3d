"""Train `tf.estimator` code, unchanged, on today's TensorFlow.

Importing this package costs nothing: TensorFlow is loaded when one of the names
below that needs it is first used.

Attributes:
    RunConfig: `tf.estimator.RunConfig`, and what it lacks.
    MonitoredTrainingSession: The session that every Estimator trains through.
    train_and_evaluate: `tf.estimator.train_and_evaluate`, with a checked start.
    TFConfig: TF_CONFIG, parsed and checked; needs no TensorFlow.
"""

import importlib

from estimator_runtime._version import __version__
from estimator_runtime.compat import install
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.tf_config import TFConfig

__all__ = [
    "EstimatorRuntimeError",
    "MonitoredTrainingSession",
    "RunConfig",
    "TFConfig",
    "__version__",
    "install",
    "train_and_evaluate",
]

_TRAINING_HALF = {
    "MonitoredTrainingSession": "estimator_runtime.session",
    "RunConfig": "estimator_runtime.run_config",
    "train_and_evaluate": "estimator_runtime.training",
}


def __getattr__(name):
    if name not in _TRAINING_HALF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    install()
    # First, as a program that goes by tf.estimator has it: what is patched after that
    # import imports these modules too, and threads that met in the other order would
    # wait for each other.
    importlib.import_module("tensorflow_estimator")
    value = getattr(importlib.import_module(_TRAINING_HALF[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
