"""TensorFlow's MonitoredSession with this package's step loop inside."""

import tensorflow as tf

from estimator_runtime import options
from estimator_runtime.loop.fused import FusedSession
from estimator_runtime.loop.hooked import PlannedSession
from estimator_runtime.loop.preemptible import PreemptibleSession
from estimator_runtime.loop.run_length import RunLength

_NanLossError = tf.compat.v1.train.NanLossDuringTrainingError


class LoopSession(PreemptibleSession):
    """A MonitoredSession that runs steps by plans, or several of them at once.

    A hook that still works when its session ends may have `settle_checkpoints()`: it is
    called before another session is made, and when this one is closed, also after an
    error. What makes its sessions may have `disown_values()`: it is called when the
    training has ended because its loss is NaN.
    """

    class _CoordinatedSessionCreator(PreemptibleSession._CoordinatedSessionCreator):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            # Once: a lost session is made again where other options may hold, and by
            # then it may be known that steps must be run one by one.
            self.run_length = RunLength(options.current().steps_per_run)
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
            if self.run_length.is_single:
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

    def _close_internal(self, exception_type=None):
        if self._coordinated_creator.hooked is not None:
            self._coordinated_creator.hooked.rest()
        try:
            super()._close_internal(exception_type)
        finally:
            self._coordinated_creator.hooked = None
            _settle(self._hooks)


def _settle(hooks):
    for hook in hooks:
        settle = getattr(hook, "settle_checkpoints", None)
        if settle is not None:
            settle()
