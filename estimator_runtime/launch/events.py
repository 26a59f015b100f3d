"""The queue in which a back end tells what happens to the tasks."""

import queue
import threading

from estimator_runtime.launch.task import Output

# Of the lines that wait, in characters, and what an event takes beside its line.
_MAX_WAITING = 1 << 20
_PER_EVENT = 100


class Events:
    """Events in the order in which they happened; to put one never blocks.

    So that lines cannot fill the memory, whoever reads them from the tasks asks
    `takes_lines` first. While it says no, he leaves them in the pipes, where the tasks
    wait for room, and goes on to put all other events: those are few.

    Attributes:
        is_hurried: Whether lines are taken also when their reader is behind, as when
            the tasks are to end: one that waits could not.
    """

    def __init__(self, is_behind=lambda: False):
        """Know who tells whether the reader of the lines is behind with them."""
        self._is_behind = is_behind
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self.is_hurried = False

    def put(self, event):
        """Add an event; any thread may."""
        self._count(event, 1)
        self._queue.put(event)

    def get(self, timeout_secs):
        """Take the next event.

        Raises:
            queue.Empty: If there is none in time.
        """
        event = self._queue.get(timeout=timeout_secs)
        self._count(event, -1)
        return event

    def takes_lines(self):
        """Tell whether there is room for lines."""
        if self._waiting >= _MAX_WAITING:
            return False
        return self.is_hurried or not self._is_behind()

    def _count(self, event, sign):
        if isinstance(event, Output):
            with self._lock:
                self._waiting += sign * (len(event.line) + _PER_EVENT)
