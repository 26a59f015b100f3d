"""Patches that pass the options of this runtime's RunConfig to the training session.

The frozen Estimator passes only TensorFlow's arguments to its session. The other
options of this runtime's RunConfig are passed beside the call (see `config.options`). A
checkpoint overhead becomes the interval of the config, for TPU configs too. While an
Estimator trains, signals stop it in an orderly way, in sessions of TensorFlow too.
"""

import functools
from types import ModuleType
from typing import Any

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.checkpoint import interval
from estimator_runtime.compat import patch
from estimator_runtime.compat.frozen import StockRunConfig
from estimator_runtime.config import options
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
