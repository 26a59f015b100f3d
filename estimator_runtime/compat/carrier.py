"""An Estimator's own options travel with its training to the session.

The frozen Estimator hands its session TensorFlow's arguments only; what this runtime's
RunConfig offers beyond them goes beside the call (see `estimator_runtime.options`).
From here on signals stop the training in order, also in sessions of TensorFlow's.
"""

import functools

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime import options, preemption


def patch_estimator(_module):
    """Let the sessions that an Estimator trains in have its config's options."""
    original = estimator.Estimator._train_model

    @functools.wraps(original)
    def train_model(self, *args, **kwargs):
        # Configs of the frozen package, and of TPU's, have none: the environment's.
        own = getattr(self.config, "training_options", None)
        with (
            options.use(own or options.TrainingOptions.from_environ()),
            preemption.watched(),
        ):
            return original(self, *args, **kwargs)

    estimator.Estimator._train_model = train_model
