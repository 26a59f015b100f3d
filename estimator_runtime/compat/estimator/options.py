"""An Estimator's own options travel with its training to the session.

The frozen Estimator hands its session TensorFlow's arguments only; what this runtime's
RunConfig offers beyond them goes beside the call (see `estimator_runtime.options`).
An overhead of checkpoints is in a config's interval, also where the config is TPU's.
From here on signals stop the training in order, also in sessions of TensorFlow's.
"""

import functools

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime import options, preemption
from estimator_runtime.checkpoint import interval
from estimator_runtime.compat import calls
from estimator_runtime.compat.frozen import StockRunConfig
from estimator_runtime.own_options import OwnOptions


def patch_estimator(_module):
    """Let the sessions that an Estimator trains in have its config's options."""
    original = estimator.Estimator._train_model

    @functools.wraps(original)
    def train_model(self, *args, **kwargs):
        own = options.TrainingOptions.of(self.config)
        with options.use(own), preemption.watched():
            return original(self, *args, **kwargs)

    estimator.Estimator._train_model = train_model


def patch_run_config(_module):
    """Let configs that are not ours, as TPU's, follow the environment's overhead."""
    original = StockRunConfig.__init__
    bind = calls.binder(original)

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        own = {}
        if not isinstance(self, OwnOptions):
            given = bind(self, *args, **kwargs).arguments
            own = interval.of_run_config(given, None)
        original(self, *args, **kwargs, **own)

    StockRunConfig.__init__ = init
