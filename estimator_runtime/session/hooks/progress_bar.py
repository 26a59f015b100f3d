"""A progress display of a training that costs no time in any step.

The hook has no part in any step, so steps may be fused or run without hooks. A separate
thread reads the global step twice a second. The loss is that of TensorFlow's last log
line, and the newest checkpoint is read from the state file of the folder.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.store import files
from estimator_runtime.checkpoint.store.state_file import StateError, read_state
from estimator_runtime.output.progress_bar import Progress
from estimator_runtime.session.hooks.observed import OtherHooks

POLL_SECS = 0.5
# How long the end of a session waits for the thread, which may wait for a lost server.
_END_SECS = 5.0


class WatchedHook(tf.compat.v1.train.SessionRunHook):
    """Shows a session's progress on a display, from its start to its end.

    Args:
        hooks: The hooks of the session, which hold the last step and the loss.
        folder: Folder of its checkpoints, or None.
        make_display: Returns a display, given the `Progress` at the start. A display
            has `show(progress)` and `close()`.
        poll_secs: Seconds between two reads of the global step.
    """

    def __init__(
        self,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        folder: Any,
        make_display: Callable[[Progress], Any],
        poll_secs: float = POLL_SECS,
    ) -> None:
        self._hooks = OtherHooks(hooks)
        self._folder = folder
        self._make_display = make_display
        self._poll_secs = poll_secs
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Find the global step, and start to listen for logged losses."""
        self._global_step = tf.compat.v1.train.get_global_step()
        self._hooks.listen()

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Start the display of this session."""
        self.settle_checkpoints()
        if self._global_step is None:
            return
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch,
            args=(session.make_callable(self._global_step), self._is_over),
            name="estimator_runtime progress",
            daemon=True,
        )
        self._thread.start()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Show the last step."""
        self.settle_checkpoints()

    def settle_checkpoints(self) -> None:
        """Stop the display; the loop calls this after an error, too."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(_END_SECS)
            self._thread = None

    def _watch(self, read: Callable[[], Any], is_over: threading.Event) -> None:
        # If the session is closed or its server is gone, there is nothing more to show.
        with contextlib.suppress(tf.errors.OpError, RuntimeError):
            display = self._make_display(self._progress(int(read())))
            with contextlib.closing(display):
                was_last = False
                while not was_last:
                    was_last = is_over.wait(self._poll_secs)
                    display.show(self._progress(int(read())))

    def _progress(self, step: int) -> Progress:
        return Progress(
            step=step,
            last_step=self._hooks.last_step,
            loss=self._hooks.loss,
            saved_step=self._saved_step(),
        )

    def _saved_step(self) -> int | None:
        if self._folder is None or "://" in self._folder:
            return None
        try:
            state = read_state(self._folder)
        except (StateError, OSError):
            return None
        return None if state is None else files.step_of(state.latest)
