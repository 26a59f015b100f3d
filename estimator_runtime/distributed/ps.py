"""Orderly shutdown of a ps: it ends only after the trainers that use it.

SIGTERM may come to all processes of a job at once: the machine shuts down, or its
scheduler stops the job. The trainers then save the variables that the ps holds. So
under our launcher the ps stays while any of them listens, and the launcher ends it with
the same signal when none does any more. Under another scheduler, an environment
variable sets how long the ps may stay.
"""

import contextlib
import math
import os
import signal
import threading
import time
from types import FrameType

from estimator_runtime import reporting
from estimator_runtime.config import waits
from estimator_runtime.signals.signals import (
    DEFAULTS,
    STATUS_OF_SIGNALS,
    SignalPipe,
    is_caught_in_c,
)


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
        self._taken: list[int] = []
        self._pipe: SignalPipe | None = None
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._grace_secs > 0:
            self._take()

    @property
    def exit_status(self) -> int:
        """The exit status of the ps, once it has been released."""
        return 0 if self.number is None else STATUS_OF_SIGNALS + self.number

    @property
    def is_by_launcher(self) -> bool:
        """Whether a launcher sends the signal, which it does when the job is done."""
        return self._is_launched and signal.SIGTERM in self._taken

    @property
    def is_overdue(self) -> bool:
        """Whether the ps has to end even if trainers are left."""
        return time.monotonic() >= self._deadline

    def wait(self, secs: float) -> None:
        """Wait for some seconds, or until a signal comes; in any thread."""
        if self._pipe is None:
            time.sleep(secs)
        elif self._pipe.wait(secs):
            for number in self._pipe.read():
                if number in self._taken:
                    self._handle(number, None)

    def restore(self) -> None:
        """Restore the default handlers, except where the program has set its own."""
        for number in self._taken:
            with contextlib.suppress(ValueError):
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, DEFAULTS[number])
        self._taken = []
        if self._pipe is not None:
            with contextlib.suppress(ValueError):
                self._pipe.restore()
            self._pipe.close()
            self._pipe = None

    def _take(self) -> None:
        # TensorFlow's own ps waits in a call during which Python runs no handler. But
        # even then Python writes the signal to this descriptor.
        self._pipe = SignalPipe()
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) == default and not is_caught_in_c(number):
                signal.signal(number, self._handle)
                self._taken.append(number)
        os.register_at_fork(after_in_child=self.restore)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            self._deadline = time.monotonic() + self._grace_secs
