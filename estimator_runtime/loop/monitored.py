"""TensorFlow's MonitoredSession with this package's step loop inside."""

from tensorflow.python.training import monitored_session

from estimator_runtime import options
from estimator_runtime.loop.fused import FusedSession
from estimator_runtime.loop.hooked import PlannedSession
from estimator_runtime.loop.run_length import RunLength


class LoopSession(monitored_session.MonitoredSession):
    """A MonitoredSession that runs steps by plans, or several of them at once."""

    class _CoordinatedSessionCreator(
        monitored_session._MonitoredSession._CoordinatedSessionCreator
    ):
        def create_session(self):
            session = super().create_session()
            steps_per_run = options.current().steps_per_run
            # In place of the hooked session, below the one that coordinates threads.
            if steps_per_run == 1:
                session._sess = PlannedSession(self.tf_sess, self._hooks)
            else:
                session._sess = FusedSession(
                    self.tf_sess, self._hooks, RunLength(steps_per_run)
                )
            return session
