"""The session that stops in order when the process is told to end."""

import contextlib
import weakref

import tensorflow as tf
from tensorflow.python.training import monitored_session

from estimator_runtime import preemption


class PreemptibleSession(monitored_session.MonitoredSession):
    """A MonitoredSession that a signal stops between two steps; see `preemption`.

    Then `should_stop` gives True, the hooks' `end` saves the last step, and closing the
    session raises what ends the program. A program that goes on to call `run` without
    asking `should_stop` gets the same from that call.
    """

    class _CoordinatedSessionCreator(
        monitored_session._MonitoredSession._CoordinatedSessionCreator
    ):
        watch: preemption.Watch | None = None

        def create_session(self):
            """Make the session; while a lost one is made again, there is none."""
            if self.watch is None:
                return super().create_session()
            self.watch.has_session = False
            if self.watch.is_requested:
                preemption.leave()
            session = super().create_session()
            self.watch.has_session = True
            return session

    _hooks: list

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._watch = preemption.Watch()
        self._coordinated_creator.watch = self._watch
        self._has_left = False
        # A session that is never closed must not keep the signals for ever.
        weakref.finalize(self, self._watch.end).atexit = False

    def should_stop(self):
        """Tell whether the training is over, for whatever reason."""
        return self._watch.is_requested or super().should_stop()

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Run a step with the hooks; see TensorFlow's `MonitoredSession`."""
        if self._watch.is_requested:
            self.close()
        return self._sess.run(
            fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata
        )

    def run_step_fn(self, step_fn):
        """Run a function that may run steps; see TensorFlow's `MonitoredSession`."""
        if self._watch.is_requested:
            self.close()
        return super().run_step_fn(step_fn)

    def __exit__(self, exception_type, exception_value, traceback):
        """Close the session; what another session has stopped for is saved here too."""
        if preemption.is_stop(exception_value) and self._watch.has_session:
            self._close_internal()
            return False
        return super().__exit__(exception_type, exception_value, traceback)

    def _close_internal(self, exception_type=None):
        if self._has_left:  # by `run`, before the program's own `close`
            return
        is_on = self._watch.is_on
        hooks = self._hooks
        self._hooks = [_unhurried(hook) for hook in hooks]
        try:
            super()._close_internal(exception_type)
        finally:
            self._hooks = hooks
            self._watch.end()
        if is_on and not exception_type:
            self._has_left = preemption.is_requested()
            preemption.leave(self._saved())

    def _saved(self):
        """Give the path of the checkpoint that its hooks have saved last, or ""."""
        for hook in self._hooks:
            # One of the program's own may be made without TensorFlow's constructor.
            folder = getattr(hook, "_checkpoint_dir", None)
            if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook) and folder:
                with contextlib.suppress(tf.errors.OpError):  # of remote storage
                    return tf.train.latest_checkpoint(folder) or ""
        return ""


def _unhurried(hook):
    """Give what a session calls at its end in place of a hook: it, if it saves nothing.

    What hangs there for another reason is to be ended with the grace.
    """
    saves = isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)
    return _UnhurriedEnd(hook) if saves else hook


class _UnhurriedEnd:
    def __init__(self, hook):
        self._hook = hook

    def end(self, session):
        """Let the hook save the last step, however long that takes."""
        with preemption.saving():
            self._hook.end(session)
