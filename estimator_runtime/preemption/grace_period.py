"""The seconds that a training has to end its step, of which saves take none."""

import math
import threading
import time

# While it is on hold, nobody says when that ends: so it is looked at this often.
_LOOK_SECS = 0.5


class Grace:
    """Counts down from a first SIGTERM on, but not while anybody holds it.

    Any thread may call it.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        # A signal's handler may come here while its thread is here.
        self._lock = threading.RLock()
        self._holders: set = set()
        self._left_secs = math.inf
        self._counted_at = 0.0

    def begin(self, secs):
        """Count down from `secs`, which are used up at once if they are 0."""
        with self._lock:
            self._counted_at = self._clock()
            self._left_secs = secs

    def forget(self):
        """Count no more, until it begins anew."""
        self._left_secs = math.inf

    def hold(self, holder):
        """Stand still until `release`."""
        with self._lock:
            self._count()
            self._holders.add(holder)

    def release(self, holder):
        """Go on where it stood, unless somebody else holds it; may be called twice."""
        with self._lock:
            self._count()
            self._holders.discard(holder)

    def release_all(self):
        """Go on, whoever holds it."""
        with self._lock:
            self._count()
            self._holders.clear()

    @property
    def is_held(self):
        """Whether anybody holds it."""
        return bool(self._holders)

    @property
    def is_over(self):
        """Whether nothing is left of it, and nobody holds it."""
        with self._lock:
            self._count()
            return self._left_secs <= 0 and not self._holders

    def next_look_secs(self):
        """Give the seconds until `is_over` may be so; None if it does not count."""
        with self._lock:
            self._count()
            if self._left_secs == math.inf:
                return None
            return max(self._left_secs, _LOOK_SECS if self._holders else 0.0)

    def _count(self):
        now = self._clock()
        if not self._holders:
            self._left_secs -= now - self._counted_at
        self._counted_at = now
