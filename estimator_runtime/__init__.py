"""Train `tf.estimator` code, unchanged, on today's TensorFlow.

Importing this package does not import TensorFlow. That happens at the first use of one
of the names below that needs it.

Attributes:
    RunConfig: `tf.estimator.RunConfig` with additional options.
    MonitoredTrainingSession: The session in which every Estimator trains.
    train_and_evaluate: `tf.estimator.train_and_evaluate`, which checks the cluster
        before it starts.
    shard: Gives each task of a parameter-server job its own part of a dataset.
    TFConfig: TF_CONFIG, parsed and checked; needs no TensorFlow.
"""

import importlib
import os
from typing import Any

from estimator_runtime import patching, reporting
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.output import log_filter

__version__ = "0.1.0"

__all__ = [
    "EstimatorRuntimeError",
    "MonitoredTrainingSession",
    "RunConfig",
    "TFConfig",
    "__version__",
    "install",
    "shard",
    "train_and_evaluate",
]

_TRAINING_HALF = {
    "MonitoredTrainingSession": "estimator_runtime.session.monitored_training_session",
    "RunConfig": "estimator_runtime.session.run_config",
    "shard": "estimator_runtime.distributed.input_sharding",
    "train_and_evaluate": "estimator_runtime.distributed.train_and_evaluate",
}


def install(
    *,
    tf1: bool | None = None,
    tf1_resource_variables: bool | None = None,
    quiet: bool | None = None,
) -> None:
    """Make `tf.estimator` work in this process, with this runtime as its backend.

    You can call it before or after `import tensorflow`. Calling it again does nothing.
    The processes that this one starts get it too, if they run the same Python.

    Args:
        tf1: Whether `import tensorflow` of the program's own files gives the API of
            TensorFlow 1 from here on, in this process and those that it starts; see
            docs/tensorflow1.md. Call it before the program imports TensorFlow. None
            (the default) does what the variable ESTIMATOR_RUNTIME_TF1 says, 1 or 0.
        tf1_resource_variables: Whether that API makes resource variables, and not the
            reference variables of TensorFlow 1. None (the default) does what the
            variable ESTIMATOR_RUNTIME_TF1_RESOURCE_VARIABLES says, 1 or 0.
        quiet: Whether to hide TensorFlow's deprecation warnings. By default they are
            hidden in notebooks, and elsewhere if ESTIMATOR_RUNTIME_VERBOSE is 0. A
            notebook then shows a progress bar instead of TensorFlow's log; see
            docs/log.md.

    Raises:
        CompatibilityError: If TensorFlow is missing or older than 2.15, if
            tensorflow-estimator 2.15.0 or (on TensorFlow >= 2.16) tf-keras is
            missing, if this process has already bound `tf.keras` to Keras 3, if a
            patch has failed in this process before, or if TensorFlow 1 mode is asked
            for after the program has imported TensorFlow, or is on with the other kind
            of variables.
        ConfigError: If one of the variables is neither 0 nor 1, or resource variables
            are asked for without TensorFlow 1 mode.
    """
    patching.install(tf1=tf1, tf1_resource_variables=tf1_resource_variables)
    reporting.start(os.environ)  # of a task that has replaced itself by `os.execv`
    log_filter.start_in_library(os.environ, quiet)


def __getattr__(name: str) -> Any:
    if name not in _TRAINING_HALF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    install()
    # First, which is the order of a program that uses tf.estimator. The patches that
    # follow this import load our modules too, so threads that import in opposite
    # orders would deadlock.
    importlib.import_module("tensorflow_estimator")
    value = getattr(importlib.import_module(_TRAINING_HALF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
