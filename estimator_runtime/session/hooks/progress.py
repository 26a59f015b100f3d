"""Hooks that report the progress of a training to a person, and to its launcher.

`WatchedHook` shows the progress on a display. It takes part in no step, so steps may be
fused or run without hooks: a separate thread reads the global step twice a second. The
loss comes from TensorFlow's last log line, and the newest checkpoint from the state
file of the folder. `ProgressHook` reports to the launcher ten times a second.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting, threads
from estimator_runtime.checkpoint.store.state_file import StateError, read_state
from estimator_runtime.config.paths import is_local, step_of
from estimator_runtime.distributed import open_trainings
from estimator_runtime.output.progress_bar import Progress
from estimator_runtime.signals import request
from estimator_runtime.tf_internals import hooks as tf_hooks

POLL_SECS = 0.5
# How often the launcher's hook looks at the global step, if no other hook has to.
_REPORT_SECS = 0.1
# How long a session that ends waits for the thread, which may hang on a lost server.
_END_SECS = 5.0


def _if_writable() -> contextlib.suppress:
    """Return a context for a display, whose stream the program may have closed."""
    return contextlib.suppress(OSError, ValueError)


class WatchedHook(tf.compat.v1.train.SessionRunHook):
    """Shows the progress of a session on displays while it is open.

    Args:
        hooks: The hooks of the session, which know the last step and the loss.
        folder: Folder of its checkpoints, or None.
        make_displays: Functions that take the `Progress` at the start, and return a
            display with the methods `show(progress)` and `close()`.
        poll_secs: Seconds between two reads of the global step.
    """

    def __init__(
        self,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        folder: Any,
        make_displays: Sequence[Callable[[Progress], Any]],
        poll_secs: float = POLL_SECS,
    ) -> None:
        self._hooks = OtherHooks(hooks)
        self._folder = folder
        self._make_displays = make_displays
        self._poll_secs = poll_secs
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Find the global step, and start listening for logged losses."""
        self._global_step = tf.compat.v1.train.get_global_step()
        self._hooks.listen()

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Start the display of this session."""
        self.finish_background_work()
        if self._global_step is None:
            return
        self._is_over = threading.Event()
        read = session.make_callable(self._global_step)
        self._thread = threads.start("progress", self._watch, read, self._is_over)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Show the last step."""
        self.finish_background_work()

    def finish_background_work(self) -> None:
        """Stop the display; the loop calls this after an error too."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(_END_SECS)
            self._thread = None

    def _watch(self, read: Callable[[], Any], is_over: threading.Event) -> None:
        # If the session is closed or its server is gone, there is nothing more to show.
        with contextlib.suppress(tf.errors.OpError, RuntimeError):
            first = self._progress(int(read()))
            with contextlib.ExitStack() as stack:
                displays = []
                for make in self._make_displays:
                    with _if_writable():
                        display = make(first)
                        stack.enter_context(_if_writable())
                        stack.callback(display.close)
                        displays.append(display)
                was_last = False
                while not was_last:
                    was_last = is_over.wait(self._poll_secs)
                    progress = self._progress(int(read()))
                    for display in displays:
                        with _if_writable():
                            display.show(progress)

    def _progress(self, step: int) -> Progress:
        return Progress(
            step=step,
            last_step=self._hooks.last_step,
            loss=self._hooks.loss,
            saved_step=self._saved_step(),
        )

    def _saved_step(self) -> int | None:
        if self._folder is None or not is_local(self._folder):
            return None
        try:
            state = read_state(self._folder)
        except (StateError, OSError):
            return None
        return None if state is None else step_of(state.latest)


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Reports the global step to the launcher, ten times a second or more often.

    It reports each step that it sees, which only stores the number; the reporter sends
    it with its next report. In between, steps may run without it. The reported loss is
    the one that was logged last, and the last step is that of a StopAtStepHook.

    Args:
        hooks: The other hooks of the session.
        folder: Folder that the session saves to, or "".
        trains_alone: Whether all steps that the global step counts are of this task.
            Else it counts the steps that it sees, which are all in a cluster.

    Attributes:
        scheduled_as: The class whose schedule it follows: that of a hook whose timer
            goes by the clock. See `loop.hooks.schedule`.
    """

    scheduled_as = tf.compat.v1.train.CheckpointSaverHook

    def __init__(
        self,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        folder: str,
        trains_alone: bool,
    ) -> None:
        self._folder, self._trains_alone = folder, trains_alone
        self._others = OtherHooks(hooks, lambda loss: reporting.progress(loss=loss))
        self._timer = tf_hooks.SecondOrStepTimer(every_secs=_REPORT_SECS)

    def begin(self) -> None:
        """Report that a training begins, and find the global step if there is one."""
        open_trainings.begin(self._folder)
        reporting.expect_steps()
        reporting.progress(doing="creating the session")
        self._others.listen()
        self._global_step = tf.compat.v1.train.get_global_step()
        self._first: int | None = None  # the first step that it has seen
        self._runs = 0

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Report the last step, which hooks that count from the first step know now."""
        reporting.progress(doing="training")
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
        step = int(run_values.results)
        if self._first is None:
            self._first = step
        here = step - self._first + 1 if self._trains_alone else self._runs
        reporting.progress(step=step, steps_here=here)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Report that the training has ended, unless a signal has stopped it."""
        if self._first is not None and self._trains_alone:
            # The last steps may have run without this hook. It reports the value from
            # before a step.
            reporting.progress(step=int(session.run(self._global_step)) - 1)
        reporting.expect_no_steps()
        if not request.is_requested():
            open_trainings.end(self._folder)


class OtherHooks:
    """Reads the last step and the loss from TensorFlow's own hooks, without a fetch.

    Args:
        hooks: The hooks of the session.
        on_loss: Called with each logged loss.

    Attributes:
        loss: The loss that a LoggingTensorHook logged last, or None.
    """

    def __init__(
        self,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        on_loss: Callable[[float], object] = lambda loss: None,
    ) -> None:
        self._hooks = hooks
        self._on_loss = on_loss
        self.loss: float | None = None

    def listen(self) -> None:
        """Start listening for logged losses."""
        for hook in self._hooks:
            # Only TensorFlow's own: a subclass may log anything.
            is_stock = type(hook) is tf.compat.v1.train.LoggingTensorHook
            if is_stock and "_log_tensors" not in vars(hook):
                hook._log_tensors = self._noting(hook._log_tensors)

    @property
    def last_step(self) -> int | None:
        """Global step at which the training ends, or None while it is unknown."""
        known = [
            # A subclass in the program may lack it, or use any kind of number.
            getattr(hook, "_last_step", None)
            for hook in self._hooks
            if isinstance(hook, tf.compat.v1.train.StopAtStepHook)
        ]
        last = min((each for each in known if each is not None), default=math.inf)
        return math.ceil(last) if last < math.inf else None

    def _noting(self, log: Callable[..., None]) -> Callable[..., None]:
        """Wrap the method with which a hook logs, so that its loss is noted."""

        @functools.wraps(log)
        def log_and_note(tensor_values: Mapping[str, Any]) -> None:
            log(tensor_values)
            loss = tensor_values.get("loss")
            if loss is not None and getattr(loss, "ndim", 0) == 0:
                self.loss = float(loss)
                self._on_loss(self.loss)

        return log_and_note
