"""Handlers of the signals that stop a process, where the program has none of its own.

Python calls a handler only between two bytecode instructions of the main thread: never
while a step of a training hangs in TensorFlow. So a watchdog thread reads the signals
from a wakeup file descriptor, which is written to even then. It ends the process where
the handler cannot: at a second SIGTERM, or when the grace period is over.

Under our launcher a second SIGTERM is the same request as the first one. One goes to
all processes of the job. The other comes from the launcher, which sends SIGKILL when
the time is over.

SIGHUP, which comes when a terminal or an ssh connection is closed, is treated as
SIGTERM, but is never a second request. It comes once from the shell and once from the
kernel, and SIGTERM follows it if the login session is ended too.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn

from estimator_runtime import reporting

_logger = logging.getLogger(__name__)

# Signal to what it does where the program has no handler of its own.
DEFAULTS: dict[int, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # ignored in the tasks of our launcher
    signal.SIGINT: signal.default_int_handler,
}
STATUS_OF_SIGNALS = 128
_JOIN_SECS = 5.0
# While the grace period is held, its end is unknown, so it is polled this often.
_LOOK_SECS = 0.5


class StopSignals:
    """Handlers of SIGTERM, SIGHUP and SIGINT, for as long as they are installed.

    A handler that the program has set stays, and an ignored signal stays ignored. A
    forked child has the default handlers again.

    Args:
        take: Called in the main thread with the number of the signal and whether it is
            the first one. It is not called for a second SIGTERM, which ends the
            process, or does nothing under our launcher.
        announce: Called in another thread with the number of the first one.
        grace_secs: Returns the seconds from a first SIGTERM or SIGHUP to the end of the
            process. The time in which `grace` is held does not count.

    Attributes:
        grace: The `Grace`.
        announce: As given.
    """

    def __init__(
        self,
        take: Callable[[int, bool], None],
        announce: Callable[[int], None],
        grace_secs: Callable[[], float],
    ) -> None:
        self.announce = announce
        self._take, self._grace_secs = take, grace_secs
        self.grace = Grace()
        self._installed: list[int] = []
        self._came: list[int] = []
        self._watchdog: _Watchdog | None = None
        os.register_at_fork(after_in_child=self._forget)

    def install(self) -> None:
        """Install handlers where the program has none; in the main thread only.

        Raises:
            ConfigError: If the grace period is not a number of seconds.
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

    def restore(self) -> None:
        """Restore the default handlers, except where the program has set its own.

        A signal that has already come is handled first.
        """
        for number in self._installed:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, DEFAULTS[number])
        self._installed = []
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        self.grace.forget()

    def forget_first(self) -> None:
        """Count the next signal as a first one: the last request has been fulfilled."""
        self._came = []
        if self._watchdog is not None:
            # Its thread has to end first: only then have all earlier signals been read.
            self._watchdog.stop()
            self.grace.forget()
            self._watchdog = _Watchdog.started(self, self._grace_secs())

    def has(self, number: int) -> bool:
        """Return whether a signal is handled here, now; any thread may call it."""
        return number in self._installed and signal.getsignal(number) == self._handle

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        before = tuple(self._came)
        self._came.append(number)
        if not before:
            self._take(number, True)
        elif number == signal.SIGINT:
            self._take(number, False)
        elif _is_again(number, before):
            end_unless_launched(number)

    def _forget(self) -> None:
        """Remove the handlers and the watchdog, in the child of a fork."""
        for number in self._installed:
            with contextlib.suppress(ValueError):
                signal.signal(number, DEFAULTS[number])
        self._installed = []
        # A new one: a thread that does not exist in the child may hold the old lock.
        self.grace = Grace()
        if self._watchdog is not None:
            self._watchdog.abandon()
            self._watchdog = None


def _is_again(number: int, before: Iterable[int]) -> bool:
    """Return whether a signal is a SIGTERM that repeats an earlier request.

    An earlier SIGHUP does not count: SIGTERM may follow it for the same reason.
    """
    return number == signal.SIGTERM and any(each != signal.SIGHUP for each in before)


def end_unless_launched(number: int) -> None:
    """End the process at a second SIGTERM, unless a launcher is there to do it."""
    if not reporting.is_on():
        end_at_once(number)


def end_at_once(number: int) -> NoReturn:
    """End the process with the status of a signal, without any cleanup."""
    os._exit(STATUS_OF_SIGNALS + number)


class _Watchdog:
    """The thread that reads signals while the main thread is busy."""

    def __init__(self, signals: StopSignals, grace_secs: float) -> None:
        self._signals, self._grace_secs = signals, grace_secs
        self._came: list[int] = []
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread = threading.Thread(
            target=self._run, name="estimator_runtime signals", daemon=True
        )

    @classmethod
    def started(cls, signals: StopSignals, grace_secs: float) -> _Watchdog | None:
        """Return a running watchdog; None if the program has a wakeup descriptor."""
        watchdog = cls(signals, grace_secs)
        before = signal.set_wakeup_fd(watchdog._writer, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            watchdog._close()
            return None
        watchdog._thread.start()
        return watchdog

    def stop(self) -> None:
        """End the thread."""
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer):
            signal.set_wakeup_fd(current)
        with contextlib.suppress(OSError):
            os.write(self._writer, b"\0")
        self._thread.join(_JOIN_SECS)

    def abandon(self) -> None:
        """Close the descriptors in a forked child, where the thread does not run."""
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
        self._close()

    def _close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)

    def _run(self) -> None:
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
                if self._signals.has(number):  # not one of the program's, nor SIGCHLD
                    self._see(number)

    def _see(self, number: int) -> None:
        before = tuple(self._came)
        self._came.append(number)
        if _is_again(number, before):
            end_unless_launched(number)
        if not before:
            # No grace period after Ctrl-C: the user can press it again.
            if number != signal.SIGINT:
                self._signals.grace.begin(self._grace_secs)
            self._signals.announce(number)

    def _end_overdue(self) -> None:
        _logger.error(
            "the training did not end within %g s after %s, not counting the time of "
            "saves; exiting without its last step",
            self._grace_secs,
            signal.Signals(self._came[0]).name,
        )
        end_at_once(self._came[0])


class Grace:
    """The seconds that a training has to end its step, without those of saves.

    The countdown starts at a first SIGTERM, and is suspended while it is held.

    Any thread may call the methods.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Reentrant: a signal handler may take it while its own thread holds it.
        self._lock = threading.RLock()
        self._holders: set[object] = set()
        self._left_secs = math.inf
        self._counted_at = 0.0

    def begin(self, secs: float) -> None:
        """Start to count down from `secs`; 0 is over at once."""
        with self._lock:
            self._counted_at = self._clock()
            self._left_secs = secs

    def forget(self) -> None:
        """Stop the countdown, until `begin` starts it anew."""
        self._left_secs = math.inf

    def hold(self, holder: object) -> None:
        """Suspend the countdown until `release`."""
        with self._lock:
            self._count()
            self._holders.add(holder)

    def release(self, holder: object) -> None:
        """Resume the countdown, unless there is another holder; may be called twice."""
        with self._lock:
            self._count()
            self._holders.discard(holder)

    def release_all(self) -> None:
        """Resume the countdown, whatever the holders are."""
        with self._lock:
            self._count()
            self._holders.clear()

    @property
    def is_held(self) -> bool:
        """Whether there is a holder."""
        return bool(self._holders)

    @property
    def is_over(self) -> bool:
        """Whether no time is left, and there is no holder."""
        with self._lock:
            self._count()
            return self._left_secs <= 0 and not self._holders

    def next_look_secs(self) -> float | None:
        """Return the seconds until `is_over` may be true; None without a countdown."""
        with self._lock:
            self._count()
            if self._left_secs == math.inf:
                return None
            return max(self._left_secs, _LOOK_SECS if self._holders else 0.0)

    def _count(self) -> None:
        now = self._clock()
        if not self._holders:
            self._left_secs -= now - self._counted_at
        self._counted_at = now
