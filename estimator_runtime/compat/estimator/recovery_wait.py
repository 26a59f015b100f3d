"""A patch of the interval at which a waiting session checks whether the chief is ready.

TensorFlow's `SessionManager` has an argument for the interval, but none of its callers,
in `monitored_session.py` and for strategies, passes it. The default is 30 s
(tensorflow#10679), so a worker that checks a moment too early loses half a minute.
"""

import functools
from types import ModuleType
from typing import Any

from tensorflow.python.training import session_manager

from estimator_runtime.compat import patch
from estimator_runtime.config import waits


def patch_session_manager(_module: ModuleType) -> None:
    """Make `waits.recovery_wait_secs` the default; an argument still overrides it."""
    original = session_manager.SessionManager.__init__
    bind = patch.binder(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = bind(self, *args, **kwargs).arguments
        if "recovery_wait_secs" not in given:
            kwargs["recovery_wait_secs"] = waits.recovery_wait_secs()
        original(self, *args, **kwargs)

    session_manager.SessionManager.__init__ = init
