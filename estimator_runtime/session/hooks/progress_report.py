"""Tells the launcher how far the training is."""

import tensorflow as tf

from estimator_runtime import options, preemption, reporting, unfinished
from estimator_runtime.hooks.other_hooks import OtherHooks


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Reports the global step with each sign of life, at the cost of a number kept.

    Where a call of the session is one step, it also counts those of this task. The loss
    is the one that was logged last, and the last step what a StopAtStepHook knows.

    Args:
        hooks: The other hooks of the session.
        folder: Where the session saves to; "" if nowhere.
    """

    def __init__(self, hooks, folder):
        self._folder = folder
        self._others = OtherHooks(hooks, lambda loss: reporting.progress(loss=loss))

    def begin(self):
        """Report that a training begins, and find the global step, if there is one."""
        unfinished.begin(self._folder)
        reporting.expect_steps()
        self._others.listen()
        self._global_step = tf.compat.v1.train.get_global_step()
        self._runs = 0
        self._counts = options.current().steps_per_run == 1

    def after_create_session(self, session, coord):
        """Report the last step, which hooks that count from here have now."""
        if self._others.last_step is not None:
            reporting.progress(last_step=self._others.last_step)

    def before_run(self, run_context):
        """Ask for the global step, as other hooks do."""
        if self._global_step is None:
            return None
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context, run_values):
        """Keep the global step for the next report."""
        if run_values.results is None:
            return
        self._runs += 1
        here = {"steps_here": self._runs} if self._counts else {}
        reporting.progress(step=int(run_values.results), **here)

    def end(self, session):
        """Report that the training has ended; one that a signal has stopped has not."""
        reporting.expect_no_steps()
        if not preemption.is_requested():
            unfinished.end(self._folder)

    def steps_until_due(self, global_step):
        """Let any step do; see `loop.cadence`."""
