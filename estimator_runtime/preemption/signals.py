"""Handlers for the signals that stop a process, if the program has none of its own.

Python calls a signal handler only between two bytecode instructions of the main thread,
so never while a training step hangs in TensorFlow. A watchdog thread therefore reads
the signals from a wakeup file descriptor, which receives them even then. It ends the
process where the handler cannot: on a second SIGTERM, or when the grace period is over.

Under our launcher, a second SIGTERM repeats the first request: one of them is sent to
all processes of the job, and the other comes from the launcher. The launcher sends
SIGKILL when the time is up.

SIGHUP arrives when a terminal or an ssh connection is closed. It is handled like
SIGTERM, but never counts as a second request: both the shell and the kernel send it,
and SIGTERM follows if the login session ends too.
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

# Maps each signal to its handler in a program that has set none.
DEFAULTS: dict[int, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # ignored in the tasks of our launcher
    signal.SIGINT: signal.default_int_handler,
}
STATUS_OF_SIGNALS = 128
_JOIN_SECS = 5.0
# While the grace period is held, its end is unknown, so it is polled this often.
_CHECK_SECS = 0.5


class StopSignals:
    """Handlers for SIGTERM, SIGHUP and SIGINT that can be installed and restored.

    A handler that the program has set is left alone, and an ignored signal stays
    ignored. A forked child gets the default handlers back.

    Args:
        take: Called in the main thread with the signal number and whether it is the
            first signal. It is not called for a second SIGTERM, which ends the process,
            or does nothing under our launcher.
        announce: Called in another thread with the number of the first signal.
        grace_secs: Returns the seconds from a first SIGTERM or SIGHUP to the end of the
            process, not counting the time during which `grace` is held.

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
        """Install the handlers that the program lacks; call it in the main thread only.

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

        A signal that has already arrived is handled first.
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
        """Treat the next signal as a first one: the last request has been fulfilled."""
        self._came = []
        if self._watchdog is not None:
            # Its thread must end first, so that it has read all earlier signals.
            self._watchdog.stop()
            self.grace.forget()
            self._watchdog = _Watchdog.started(self, self._grace_secs())

    def has(self, number: int) -> bool:
        """Return whether this object handles a signal now; any thread may call it."""
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
        """Remove the handlers and the watchdog in a forked child."""
        for number in self._installed:
            with contextlib.suppress(ValueError):
                signal.signal(number, DEFAULTS[number])
        self._installed = []
        # A new object: the old lock may be held by a thread the child does not have.
        self.grace = Grace()
        if self._watchdog is not None:
            self._watchdog.abandon()
            self._watchdog = None


def _is_again(number: int, before: Iterable[int]) -> bool:
    """Return whether a signal is a SIGTERM that repeats an earlier request.

    An earlier SIGHUP does not count, because one event may cause both signals.
    """
    return number == signal.SIGTERM and any(each != signal.SIGHUP for each in before)


def end_unless_launched(number: int) -> None:
    """End the process on a second SIGTERM, unless a launcher will do so."""
    if not reporting.is_on():
        end_at_once(number)


def end_at_once(number: int) -> NoReturn:
    """End the process with the status of a signal, without any cleanup."""
    os._exit(STATUS_OF_SIGNALS + number)


class _Watchdog:
    """A thread that reads signals while the main thread is busy."""

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
        """Return a running watchdog, or None if the program has a wakeup descriptor."""
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
        """Close the descriptors in a forked child, which does not have the thread."""
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
                if self._signals.has(number):  # skips SIGCHLD and the program's
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
    def is_held(self) -> bool:
        """Whether anything holds the countdown."""
        return bool(self._holders)

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
