"""The frozen package's own objects, before the runtime's took their names.

Each is looked up when it is first asked for, not when this module is imported:
importing the frozen package imports the runtime's modules (see `seam`), which ask
for these in turn.
"""

import importlib

from estimator_runtime import compat

_PACKAGE = "tensorflow_estimator.python.estimator"
_OBJECTS = {
    "StockRunConfig": ("run_config", "RunConfig"),
    "default_session_config": ("run_config", "get_default_session_config"),
    "StockTrainingExecutor": ("training", "_TrainingExecutor"),
    "assert_eval_spec": ("training", "_assert_eval_spec"),
    "is_google_env": ("training", "_is_google_env"),
    "stock_train_and_evaluate": ("training", "train_and_evaluate"),
}


def start_delays():
    """Give the start delay by which workers differ, and the longest, in seconds.

    Not kept: a program may patch them, through whichever road, at any time.
    """
    training = importlib.import_module(f"{_PACKAGE}.training")
    return training._DELAY_SECS_PER_WORKER, training._MAX_DELAY_SECS


def __getattr__(name):
    if name not in _OBJECTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    compat.install()
    module, attribute = _OBJECTS[name]
    value = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), attribute)
    # The import may have asked for the same name, and replaced the original since.
    return globals().setdefault(name, value)
