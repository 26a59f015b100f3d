"""Estimators look at a folder's checkpoints only once those have been checked.

Before it makes a session, `Estimator.train` reads the global step of the newest
checkpoint, to tell whether `max_steps` are done. What it cannot read counts as 0, and
it trains on.
"""

import functools
import os

from tensorflow_estimator.python.estimator import estimator

from estimator_runtime import reporting, session_checks
from estimator_runtime.checkpoint import checksums, recovery, turns
from estimator_runtime.compat import calls


def patch_estimator(_module):
    """Let the task that saves checkpoints check them before it trains."""
    original = estimator.Estimator.train
    bind = calls.binder(original)

    @functools.wraps(original)
    def train(self, *args, **kwargs):
        call = bind(self, *args, **kwargs)
        folder = os.fsdecode(self.model_dir)
        config = self.config
        # A folder that nothing is saved to need not be found again.
        if config.save_checkpoints_secs or config.save_checkpoints_steps:
            session_checks.check_model_dir("model_dir", folder)
        # Under the coordinator each task seems to be the chief until its turn comes;
        # then this is called again.
        coordinated = getattr(config, "_distribute_coordinator_mode", None)
        if config.is_chief and not coordinated and "://" not in folder:
            with turns.turn():
                newest = recovery.recover(folder)
            _check_result(folder, newest, call.arguments.get("max_steps"))
        if coordinated:
            return original(self, *args, **kwargs)
        # Not only in the session: the program's input_fn may be what blocks.
        reporting.expect_steps()
        try:
            return original(self, *args, **kwargs)
        finally:
            reporting.expect_no_steps()

    estimator.Estimator.train = train


def _check_result(folder, newest, max_steps):
    """Check the values of a checkpoint at which there is nothing left to train.

    Nobody restores it then, who would find out.
    """
    if newest is None or not max_steps or (newest.step or 0) < max_steps:
        return
    problem = checksums.problem(newest.prefix)
    if problem is not None:
        recovery.set_aside_latest(folder, problem)
