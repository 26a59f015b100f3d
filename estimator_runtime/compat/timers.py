"""TensorFlow's timers, based on the monotonic clock.

Hooks that act every so many seconds, and a worker's wait for its session, compare times
of the wall clock. If it is set back a day, no checkpoint is due for a day; if it is set
forward, a wait ends at once.
"""

import time

from tensorflow.python.training import basic_session_run_hooks, session_manager


class _Time:
    """The module `time` with a `time()` that never goes back."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def time(self) -> float:
        return now()


def now() -> float:
    """Return seconds by the clock of TensorFlow's timers once they are patched."""
    return time.monotonic()


def current() -> float:
    """Return seconds by the clock of TensorFlow's timers, patched or not."""
    return basic_session_run_hooks.time.time()


def use_monotonic_time(_module: object) -> None:
    """Make the timers of hooks, and waits for a session, go by `now`."""
    for module in (basic_session_run_hooks, session_manager):
        module.time = _Time()
