"""The signals that ask a process to end, taken where the program leaves them alone.

Python calls a handler only between two steps of its own, in the main thread: while a
step of a training hangs in TensorFlow, never. So a thread reads what has come, from a
descriptor that is written to even then; it ends the process where the handler cannot:
at a second SIGTERM, or when the grace is over.

Under our launcher a second SIGTERM is the same request as the first: one came to all
processes of the job, the other is the launcher's, who sends SIGKILL when time is over.

SIGHUP, when a terminal or an ssh connection is closed, is as SIGTERM, but never a
second request: it comes once from the shell and once from the kernel, and SIGTERM
follows it where the session is ended too.
"""

import contextlib
import logging
import os
import select
import signal
import threading
from typing import Any

from estimator_runtime import reporting
from estimator_runtime.grace import Grace

_logger = logging.getLogger(__name__)

# Signal to what it does where the program has no handler of its own.
DEFAULTS: dict[int, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # ignored in the tasks of our launcher
    signal.SIGINT: signal.default_int_handler,
}
STATUS_OF_SIGNALS = 128
_JOIN_SECS = 5.0


class StopSignals:
    """Handlers of SIGTERM, SIGHUP and SIGINT, for as long as they are installed.

    A handler that the program has set stays, and so does a signal that is ignored.
    A forked child has the defaults again.

    Args:
        take: Called in the main thread with the number of the signal and whether it is
            the first one; a second SIGTERM ends the process instead, or does nothing
            under our launcher.
        announce: Called in another thread with the number of the first one.
        grace_secs: Gives the seconds from a first SIGTERM or SIGHUP on until the
            process is ended, the time not counted while `grace` is held.

    Attributes:
        grace: The `Grace`.
    """

    def __init__(self, take, announce, grace_secs):
        self._take, self._announce, self._grace_secs = take, announce, grace_secs
        self.grace = Grace()
        self._installed: list[int] = []
        self._came: list[int] = []
        self._watchdog: _Watchdog | None = None
        os.register_at_fork(after_in_child=self._forget)

    def install(self):
        """Take the signals that nobody else has; in the main thread only.

        Raises:
            ConfigError: If the grace is no number of seconds.
        """
        grace_secs = self._grace_secs()
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) == default:
                signal.signal(number, self._handle)
                self._installed.append(number)
        self._came = []
        self.grace.release_all()
        if self._installed:
            self._watchdog = _Watchdog.started(self, grace_secs)

    def restore(self):
        """Put back what was there, but for what the program has changed meanwhile.

        A signal that is on its way is taken before.
        """
        for number in self._installed:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, DEFAULTS[number])
        self._installed = []
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        self.grace.forget()

    def forget_first(self):
        """Let the next signal be a first one: what this one asked for has been done."""
        self._came = []
        if self._watchdog is not None:
            # Only when its thread has seen all that came is it known what did not.
            self._watchdog.stop()
            self.grace.forget()
            self._watchdog = _Watchdog.started(self, self._grace_secs())

    def has(self, number):
        """Tell whether a signal is taken here, now; may be called by any thread."""
        return number in self._installed and signal.getsignal(number) == self._handle

    def announce(self, number):
        """Let it be known that the first signal has come."""
        self._announce(number)

    def _handle(self, number, _frame):
        before = tuple(self._came)
        self._came.append(number)
        if not before:
            self._take(number, True)
        elif number == signal.SIGINT:
            self._take(number, False)
        elif _is_again(number, before):
            end_unless_launched(number)

    def _forget(self):
        """Be a plain process again, in the child of a fork."""
        for number in self._installed:
            with contextlib.suppress(ValueError):
                signal.signal(number, DEFAULTS[number])
        self._installed = []
        self.grace = Grace()  # the lock may be that of a thread which is not here
        if self._watchdog is not None:
            self._watchdog.abandon()
            self._watchdog = None


def _is_again(number, before):
    """Tell whether a signal, no SIGINT, asks once more after those that came before."""
    return number == signal.SIGTERM and any(each != signal.SIGHUP for each in before)


def end_unless_launched(number):
    """End the process at a second SIGTERM, but leave that to our launcher."""
    if not reporting.is_on():
        end_at_once(number)


def end_at_once(number):
    """End the process with the status of a signal, without a look back."""
    os._exit(STATUS_OF_SIGNALS + number)


class _Watchdog:
    """The thread that sees signals while the main thread is busy."""

    def __init__(self, signals, grace_secs):
        self._signals, self._grace_secs = signals, grace_secs
        self._came: list[int] = []
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(
            target=self._run, name="estimator_runtime signals", daemon=True
        )

    @classmethod
    def started(cls, signals, grace_secs):
        """Give one that runs; None where the program has such a descriptor."""
        watchdog = cls(signals, grace_secs)
        before = signal.set_wakeup_fd(watchdog._writer, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            watchdog._close()
            return None
        watchdog._thread.start()
        return watchdog

    def stop(self):
        """End the thread."""
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer):
            signal.set_wakeup_fd(current)
        with contextlib.suppress(OSError):
            os.write(self._writer, b"\0")
        self._thread.join(_JOIN_SECS)

    def abandon(self):
        """Let go of it in a forked child, where its thread does not run."""
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
        self._close()

    def _close(self):
        os.close(self._reader)
        os.close(self._writer)

    def _run(self):
        while True:
            timeout_secs = self._signals.grace.next_look_secs()
            if not select.select([self._reader], [], [], timeout_secs)[0]:
                if self._signals.grace.is_over:
                    self._end_overdue()
                continue
            for number in os.read(self._reader, 64):
                if number == 0:
                    self._close()
                    return
                if self._signals.has(number):  # not the program's, nor SIGCHLD
                    self._see(number)

    def _see(self, number):
        before = tuple(self._came)
        self._came.append(number)
        if _is_again(number, before):
            end_unless_launched(number)
        if not before:
            if number != signal.SIGINT:  # who presses Ctrl-C can do so again
                self._signals.grace.begin(self._grace_secs)
            self._signals.announce(number)

    def _end_overdue(self):
        _logger.error(
            "the training did not come to its end within %g s after %s, the time of "
            "saves not counted; ending without it",
            self._grace_secs,
            signal.Signals(self._came[0]).name,
        )
        end_at_once(self._came[0])
