"""How often a session that waits for the chief looks whether it is ready.

TensorFlow's `SessionManager` takes the interval as an argument, but none of those who
make one, in `monitored_session.py` and for strategies, gives it: it is 30 s
(tensorflow#10679), and a worker that looks a moment too early loses half a minute.
"""

import functools

from tensorflow.python.training import session_manager

from estimator_runtime import waits
from estimator_runtime.compat import calls


def patch_session_manager(_module):
    """Let the default be `waits.recovery_wait_secs`; an argument still wins."""
    original = session_manager.SessionManager.__init__
    bind = calls.binder(original)

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        given = bind(self, *args, **kwargs).arguments
        if "recovery_wait_secs" not in given:
            kwargs["recovery_wait_secs"] = waits.recovery_wait_secs()
        original(self, *args, **kwargs)

    session_manager.SessionManager.__init__ = init
