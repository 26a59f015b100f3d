"""Patches that pass the options of this runtime to the sessions of Estimators.

The frozen Estimator passes only TensorFlow's arguments to its session. The other
options of this runtime's RunConfig are passed beside the call (see `config.options`). A
checkpoint overhead becomes the interval of the config, for TPU configs too. While an
Estimator trains, signals stop it in an orderly way, in sessions of TensorFlow too.
"""

import functools
from types import ModuleType
from typing import Any

from tensorflow.python.training import session_manager
from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.checkpoint import interval
from estimator_runtime.compat import patch
from estimator_runtime.compat.seam import StockRunConfig
from estimator_runtime.config import options, waits
from estimator_runtime.config.options import OwnOptions
from estimator_runtime.preemption import request


def patch_estimator(_module: ModuleType) -> None:
    """Make an Estimator's training sessions use the options of its config."""
    original = estimator.Estimator._train_model

    @functools.wraps(original)
    def train_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = options.TrainingOptions.of(self.config)
        with options.use(own), request.watched():
            return original(self, *args, **kwargs)

    estimator.Estimator._train_model = train_model


def patch_run_config(_module: ModuleType) -> None:
    """Make other configs, such as TPU configs, use the overhead of the environment."""
    original = StockRunConfig.__init__
    bind = patch.binder(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        own: dict[str, Any] = {}
        if not isinstance(self, OwnOptions):
            given = bind(self, *args, **kwargs).arguments
            own = interval.of_run_config(given, None)
        original(self, *args, **kwargs, **own)

    StockRunConfig.__init__ = init


def patch_session_manager(_module: ModuleType) -> None:
    """Make `waits.recovery_wait_secs` the default; an argument still overrides it.

    It is the interval at which a waiting session checks whether the chief is ready.
    SessionManager has an argument for it, but none of TensorFlow's callers passes it.
    The default is 30 s (tensorflow#10679), so a worker that checks a moment too early
    loses half a minute.
    """
    original = session_manager.SessionManager.__init__
    bind = patch.binder(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = bind(self, *args, **kwargs).arguments
        if "recovery_wait_secs" not in given:
            kwargs["recovery_wait_secs"] = waits.recovery_wait_secs()
        original(self, *args, **kwargs)

    session_manager.SessionManager.__init__ = init
