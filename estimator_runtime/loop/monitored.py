"""TensorFlow's MonitoredSession with this package's step loop inside."""

import tensorflow as tf

from estimator_runtime import options, reporting, waits
from estimator_runtime.checkpoint import nan_values
from estimator_runtime.loop.fused import FusedSession
from estimator_runtime.loop.hooked import HookedSession, PlannedSession
from estimator_runtime.loop.preemptible import PreemptibleSession
from estimator_runtime.loop.run_length import RunLength

_NanLossError = tf.compat.v1.train.NanLossDuringTrainingError


class LoopSession(PreemptibleSession):
    """A MonitoredSession that runs steps by plans, or several of them at once.

    The option `loop` may ask for less: no runs of several steps, or no plans either.

    A hook that still works when its session ends may have `settle_checkpoints()`: it is
    called before another session is made, and when this one is closed, also after an
    error. What makes its sessions may have `disown_values()`: it is called when the
    training has ended because its loss is NaN. It may also have a `checkpoint_dir`: the
    traceback then names the folder's newest checkpoint without NaN.
    """

    class _CoordinatedSessionCreator(PreemptibleSession._CoordinatedSessionCreator):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            # Once: a lost session is made again where other options may hold, and by
            # then it may be known that steps must be run one by one.
            chosen = options.current()
            self.run_length = RunLength(chosen.steps_per_run, waits.stop_grace_secs())
            self._loop = chosen.loop
            if self._loop != "auto":
                self.run_length.run_singly(f"is run by the loop {self._loop!r}")
            self.hooked = None
            self._graph = tf.compat.v1.get_default_graph()

        def create_session(self):
            if self.hooked is not None:
                self.hooked.rest()
            self.hooked = None  # lets go of the memory of a session that was lost
            _settle(self._hooks)  # the new one may be restored from what they write
            # A lost session may be made again outside of its graph's `with`, or in
            # another thread.
            with self._graph.as_default():
                session = super().create_session()
            # In place of the hooked session, below the one that coordinates threads.
            if self._loop == "stock":
                self.hooked = HookedSession(self.tf_sess, self._hooks)
            elif self.run_length.is_single:
                self.hooked = PlannedSession(self.tf_sess, self._hooks)
            else:
                self.hooked = FusedSession(self.tf_sess, self._hooks, self.run_length)
            session._sess = self.hooked
            return session

    def run_step_fn(self, step_fn):
        """Run a function that may run steps; see TensorFlow's `MonitoredSession`."""
        creator = self._coordinated_creator
        creator.run_length.run_singly("is run by a function, through run_step_fn")
        if isinstance(creator.hooked, FusedSession):
            creator.hooked.forget_end_of_data()  # the function may start the data again
        return super().run_step_fn(step_fn)

    def __exit__(self, exception_type, exception_value, traceback):
        """Close the session; see TensorFlow's `MonitoredSession`."""
        try:
            return super().__exit__(exception_type, exception_value, traceback)
        finally:
            if isinstance(exception_value, _NanLossError):
                creator = self._coordinated_creator._session_creator
                getattr(creator, "disown_values", lambda: None)()
                folder = getattr(creator, "checkpoint_dir", None)
                # A launcher says it for all its tasks.
                if folder is not None and not reporting.is_on():
                    nan_values.add_note(exception_value, folder)

    def _close_internal(self, exception_type=None):
        if self._coordinated_creator.hooked is not None:
            self._coordinated_creator.hooked.rest()
        try:
            super()._close_internal(exception_type)
        finally:
            reporting.expect_no_steps()
            self._coordinated_creator.hooked = None
            _settle(self._hooks)


def _settle(hooks):
    for hook in hooks:
        settle = getattr(hook, "settle_checkpoints", None)
        if settle is not None:
            settle()
