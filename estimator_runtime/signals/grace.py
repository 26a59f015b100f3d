"""The time that a training has to end after a signal."""

import math
import threading
import time
from collections.abc import Callable

# While the grace period is held, its end is unknown, so it is polled this often.
_CHECK_SECS = 0.5


class Grace:
    """The time a training has to finish its step, not counting time spent on saves.

    The countdown starts at the first SIGTERM, and is suspended while anything holds it.

    Any thread may call the methods.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Reentrant: a signal handler may run in the thread that holds the lock.
        self._lock = threading.RLock()
        self._holders: set[object] = set()
        self._left_secs = math.inf
        self._counted_at = 0.0

    def begin(self, secs: float) -> None:
        """Start the countdown at `secs` seconds; with 0 it is over at once."""
        with self._lock:
            self._counted_at = self._clock()
            self._left_secs = secs

    def forget(self) -> None:
        """Stop the countdown until the next `begin`."""
        self._left_secs = math.inf

    def hold(self, holder: object) -> None:
        """Suspend the countdown until `release`."""
        with self._lock:
            self._count()
            self._holders.add(holder)

    def release(self, holder: object) -> None:
        """Resume the countdown unless another holder remains; may be called twice."""
        with self._lock:
            self._count()
            self._holders.discard(holder)

    def release_all(self) -> None:
        """Resume the countdown and drop all holders."""
        with self._lock:
            self._count()
            self._holders.clear()

    @property
    def is_over(self) -> bool:
        """Whether the time is up and nothing holds the countdown."""
        with self._lock:
            self._count()
            return self._left_secs <= 0 and not self._holders

    def next_look_secs(self) -> float | None:
        """Return the seconds until `is_over` may be true, or None if not counting."""
        with self._lock:
            self._count()
            if self._left_secs == math.inf:
                return None
            return max(self._left_secs, _CHECK_SECS if self._holders else 0.0)

    def _count(self) -> None:
        now = self._clock()
        if not self._holders:
            self._left_secs -= now - self._counted_at
        self._counted_at = now
