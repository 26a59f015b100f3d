"""Orderly shutdown of a ps: it ends only after the trainers that use it.

SIGTERM may come to all processes of a job at once: the machine shuts down, or its
scheduler stops the job. The trainers then save the variables that the ps holds. So
under our launcher the ps stays while any of them listens, and the launcher ends it with
the same signal when none does any more. Under another scheduler, an environment
variable sets how long the ps may stay.
"""

import math
import signal
import threading
import time
from types import FrameType

from estimator_runtime import reporting
from estimator_runtime.config import waits
from estimator_runtime.signals.inbox import STATUS_OF_SIGNALS, SignalInbox


class PsShutdown:
    """Handlers of the stop signals for a ps that may stay after one of them.

    They are installed where the program has no handlers of its own. Without a launcher
    and a grace period, or outside of the main thread, none are installed.

    Attributes:
        number: The number of the first signal that came, or None.
    """

    def __init__(self) -> None:
        """Install the handlers, until `restore`.

        Raises:
            ConfigError: If the grace period is not a number of seconds.
        """
        self.number: int | None = None
        self._deadline = math.inf
        # Under a launcher there is no deadline: it ends the ps itself.
        self._is_launched = reporting.is_on()
        self._grace_secs = math.inf if self._is_launched else waits.ps_grace_secs()
        # TensorFlow's own ps waits in a call during which Python runs no handler.
        is_main = threading.current_thread() is threading.main_thread()
        waits_for_trainers = is_main and self._grace_secs > 0
        self._inbox = SignalInbox(self._handle) if waits_for_trainers else None

    @property
    def exit_status(self) -> int:
        """The exit status of the ps, once it has been released."""
        return 0 if self.number is None else STATUS_OF_SIGNALS + self.number

    @property
    def is_by_launcher(self) -> bool:
        """Whether a launcher sends the signal, which it does when the job is done."""
        takes = self._inbox is not None and signal.SIGTERM in self._inbox.numbers
        return self._is_launched and takes

    @property
    def is_overdue(self) -> bool:
        """Whether the ps has to end even if trainers are left."""
        return time.monotonic() >= self._deadline

    def wait(self, secs: float) -> None:
        """Wait for some seconds, or until a signal comes; in any thread."""
        if self._inbox is None:
            time.sleep(secs)
        elif self._inbox.wait(secs):
            for number in self._inbox.read():
                self._handle(number, None)

    def restore(self) -> None:
        """Restore the default handlers, except where the program has set its own."""
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.close()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            self._deadline = time.monotonic() + self._grace_secs
