"""Estimators look at a folder's checkpoints only once those have been checked.

Before it makes a session, `Estimator.train` reads the global step of the newest
checkpoint, to tell whether `max_steps` are done. What it cannot read counts as 0, and
it trains on.
"""

import functools
import os

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime.checkpoint import recovery


def patch_estimator(_module):
    """Let the task that saves checkpoints check them before it trains."""
    original = estimator.Estimator.train

    @functools.wraps(original)
    def train(self, *args, **kwargs):
        folder = os.fsdecode(self.model_dir)
        config = self.config
        # Under the coordinator each task seems to be the chief until its turn comes;
        # then this is called again.
        coordinated = getattr(config, "_distribute_coordinator_mode", None)
        if config.is_chief and not coordinated and "://" not in folder:
            recovery.recover(folder)
        return original(self, *args, **kwargs)

    estimator.Estimator.train = train
