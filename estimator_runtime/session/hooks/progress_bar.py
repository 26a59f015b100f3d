"""Shows how far a training is, while no step pays for it.

The hook has no part in any step: it keeps none from being fused, and none from being
run without hooks. A thread of its own reads the global step twice a second; the loss is
that of TensorFlow's last log line, and the newest checkpoint is what the folder says.
"""

import contextlib
import threading

import tensorflow as tf

from estimator_runtime.checkpoint import files
from estimator_runtime.checkpoint.state import StateError, read_state
from estimator_runtime.hooks.display import Progress
from estimator_runtime.hooks.other_hooks import OtherHooks

POLL_SECS = 0.5
# How long the end of a session waits for a thread that waits for a lost server.
_END_SECS = 5.0


class WatchedHook(tf.compat.v1.train.SessionRunHook):
    """Shows a session's progress on a display, from its start to its end.

    Args:
        hooks: The hooks of the session, which know the last step and the loss.
        folder: Folder of its checkpoints, or None.
        make_display: Gives a display, of the `Progress` it starts from; a display has
            `show(progress)` and `close()`.
        poll_secs: Seconds between two looks at the global step.
    """

    def __init__(self, hooks, folder, make_display, poll_secs=POLL_SECS):
        self._hooks = OtherHooks(hooks)
        self._folder = folder
        self._make_display = make_display
        self._poll_secs = poll_secs
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self):
        """Find the global step, and listen to what is logged."""
        self._global_step = tf.compat.v1.train.get_global_step()
        self._hooks.listen()

    def after_create_session(self, session, coord):
        """Watch this session from here on."""
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

    def end(self, session):
        """Show the last step."""
        self.settle_checkpoints()

    def settle_checkpoints(self):
        """Stop watching; the loop calls this also after an error."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(_END_SECS)
            self._thread = None

    def _watch(self, read, is_over):
        # The session was closed, or its server is gone: there is nothing more to show.
        with contextlib.suppress(tf.errors.OpError, RuntimeError):
            display = self._make_display(self._progress(int(read())))
            with contextlib.closing(display):
                was_last = False
                while not was_last:
                    was_last = is_over.wait(self._poll_secs)
                    display.show(self._progress(int(read())))

    def _progress(self, step):
        return Progress(
            step=step,
            last_step=self._hooks.last_step,
            loss=self._hooks.loss,
            saved_step=self._saved_step(),
        )

    def _saved_step(self):
        if self._folder is None or "://" in self._folder:
            return None
        try:
            state = read_state(self._folder)
        except (StateError, OSError):
            return None
        return None if state is None else files.step_of(state.latest)
