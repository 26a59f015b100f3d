"""Progress reports of a training to its launcher."""

from collections.abc import Sequence

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.config import options
from estimator_runtime.distributed import open_trainings
from estimator_runtime.preemption import request
from estimator_runtime.session.hooks.observed import OtherHooks


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Reports the global step to the launcher.

    A step only stores the number; the reporter sends it with its next report. If each
    call of the session is one step, the steps of this task are counted, too. The loss
    is the one that was logged last, and the last step is that of a StopAtStepHook.

    Args:
        hooks: The other hooks of the session.
        folder: Folder that the session saves to; "" for none.
    """

    def __init__(
        self, hooks: Sequence[tf.compat.v1.train.SessionRunHook], folder: str
    ) -> None:
        self._folder = folder
        self._others = OtherHooks(hooks, lambda loss: reporting.progress(loss=loss))

    def begin(self) -> None:
        """Report that a training begins, and find the global step, if there is one."""
        open_trainings.begin(self._folder)
        reporting.expect_steps()
        self._others.listen()
        self._global_step = tf.compat.v1.train.get_global_step()
        self._runs = 0
        self._counts = options.current().steps_per_run == 1

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Report the last step, which hooks that count from the first step now know."""
        if self._others.last_step is not None:
            reporting.progress(last_step=self._others.last_step)

    def before_run(
        self, run_context: tf.compat.v1.train.SessionRunContext
    ) -> tf.compat.v1.train.SessionRunArgs | None:
        """Fetch the global step, as other hooks do."""
        if self._global_step is None:
            return None
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Store the global step for the next report."""
        if run_values.results is None:
            return
        self._runs += 1
        here = {"steps_here": self._runs} if self._counts else {}
        reporting.progress(step=int(run_values.results), **here)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Report that the training has ended, unless a signal has stopped it."""
        reporting.expect_no_steps()
        if not request.is_requested():
            open_trainings.end(self._folder)

    def steps_until_due(self, global_step: int) -> None:
        """Return None: this hook has to see no step; see `loop.hook_schedule`."""
