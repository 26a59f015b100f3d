"""The frozen package's original objects, which the runtime has replaced.

Each is looked up when it is first used and not when this module is imported. Importing
the frozen package imports the runtime's modules (see `seam`), which use these objects
in turn.
"""

import importlib
from typing import Any

from estimator_runtime import compat

_PACKAGE = "tensorflow_estimator.python.estimator"
_OBJECTS = {
    "Exporter": ("exporter", "Exporter"),
    "ModeKeys": ("mode_keys", "ModeKeys"),
    "MultiLabelHead": ("head.multi_label_head", "MultiLabelHead"),
    "StockEstimator": ("estimator", "Estimator"),
    "StockRunConfig": ("run_config", "RunConfig"),
    "default_session_config": ("run_config", "get_default_session_config"),
    "StockTrainingExecutor": ("training", "_TrainingExecutor"),
    "assert_eval_spec": ("training", "_assert_eval_spec"),
    "is_google_env": ("training", "_is_google_env"),
    "stock_train_and_evaluate": ("training", "train_and_evaluate"),
}


def start_delays() -> tuple[float, float]:
    """Return the start delay per worker, and the longest one, in seconds.

    They are not cached, because a program may patch them at any time.
    """
    training = importlib.import_module(f"{_PACKAGE}.training")
    return training._DELAY_SECS_PER_WORKER, training._MAX_DELAY_SECS


def __getattr__(name: str) -> Any:
    if name not in _OBJECTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    compat.install()
    module, attribute = _OBJECTS[name]
    value = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), attribute)
    # The import may have looked up the same name, and then replaced the original.
    return globals().setdefault(name, value)
