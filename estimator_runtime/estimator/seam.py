"""The seam: where the trainings of the frozen Estimator are connected to this runtime.

The frozen package trains through three names: `RunConfig`, `train_and_evaluate` and
`MonitoredTrainingSession`. Importing the modules of the runtime that define them puts
ours in their place, everywhere (see `patching.frozen.replaces`).
"""

import importlib
import types

_RUNTIME_MODULES = (
    "estimator_runtime.session.run_config",
    "estimator_runtime.session.monitored_training_session",
    "estimator_runtime.distributed.train_and_evaluate",
)


def connect(_module: types.ModuleType) -> None:
    """Import the modules of the runtime that replace the three names."""
    for name in _RUNTIME_MODULES:
        importlib.import_module(name)
