"""When a ps that is told to end does so: not before those who train have left it.

SIGTERM may come to all processes of a job at once: the machine shuts down, or its
scheduler stops the job. The trainers then save what the ps holds, so under our launcher
it stays for as long as one of them listens. The launcher ends it by the same signal,
when nobody does any more. Another scheduler says how long it may stay, by a variable.
"""

import contextlib
import math
import os
import select
import signal
import threading
import time

from estimator_runtime import reporting, waits
from estimator_runtime.signals import DEFAULTS, STATUS_OF_SIGNALS


class Release:
    """SIGTERM and SIGINT at a ps that may stay, where the program leaves them alone.

    Without a launcher and a grace, or outside of the main thread, they are not taken.

    Attributes:
        number: The first of them that came, or None.
    """

    def __init__(self):
        """Take them from now on, until `restore`.

        Raises:
            ConfigError: If the grace is no number of seconds.
        """
        self.number: int | None = None
        self._deadline = math.inf
        # A launcher sees to the end itself.
        self._is_launched = reporting.is_on()
        self._grace_secs = math.inf if self._is_launched else waits.ps_grace_secs()
        self._taken: list[int] = []
        self._reader = self._writer = -1
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._grace_secs > 0:
            self._take()

    @property
    def exit_status(self):
        """That of the ps, once it has been released."""
        return 0 if self.number is None else STATUS_OF_SIGNALS + self.number

    @property
    def is_by_launcher(self):
        """Whether it comes from a launcher, which sends it when the job is done."""
        return self._is_launched and signal.SIGTERM in self._taken

    @property
    def is_overdue(self):
        """Whether the ps has to end, trainers or not."""
        return time.monotonic() >= self._deadline

    def wait(self, secs):
        """Wait so long, or until a signal comes; in any thread."""
        if self._reader == -1:
            time.sleep(secs)
        elif select.select([self._reader], [], [], secs)[0]:
            for number in os.read(self._reader, 64):
                if number in self._taken:
                    self._handle(number, None)

    def restore(self):
        """Give the signals back, but for what the program has changed meanwhile."""
        for number in self._taken:
            with contextlib.suppress(ValueError):
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, DEFAULTS[number])
        self._taken = []
        if self._reader != -1:
            with contextlib.suppress(ValueError):
                signal.set_wakeup_fd(-1)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1

    def _take(self):
        # TensorFlow's own ps waits in a call in which python calls no handler, but
        # writes to this descriptor.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if before != -1:  # it is the program's
            signal.set_wakeup_fd(before)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) == default:
                signal.signal(number, self._handle)
                self._taken.append(number)
        os.register_at_fork(after_in_child=self.restore)

    def _handle(self, number, _frame):
        if self.number is None:
            self.number = number
            self._deadline = time.monotonic() + self._grace_secs
