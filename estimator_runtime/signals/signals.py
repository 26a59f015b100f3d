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
and SIGTERM follows if the login session ends too. The same holds for the signals with
which a batch system announces a time limit.
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
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from estimator_runtime import reporting

_logger = logging.getLogger(__name__)

# Signals of which SIGTERM may be the sequel, so that it is no second request. The user
# signals are what `sbatch --signal` names, and SIGXCPU follows from `ulimit -t`.
NOTICES = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
# Maps each signal to its handler in a program that has set none. In the tasks of our
# launcher, some are ignored: see `launch/local/fork_server`.
DEFAULTS: dict[int, Any] = {
    signal.SIGTERM: signal.SIG_DFL,
    **dict.fromkeys(NOTICES, signal.SIG_DFL),
    signal.SIGINT: signal.default_int_handler,
}
STATUS_OF_SIGNALS = 128
# The same signal twice within this time is one request: nobody presses Ctrl-C that
# fast. But `timeout` of GNU coreutils signals a program and then its process group,
# wrappers forward what the terminal has sent to all, and batch scripts what the
# scheduler has.
_SAME_SECS = 0.1
_JOIN_SECS = 5.0
# While the grace period is held, its end is unknown, so it is polled this often.
_CHECK_SECS = 0.5


class StopRequests:
    """A filter that separates stop requests from signals that merely accompany one.

    The first request asks for a graceful stop. Each later one asks for a stop at once.
    """

    def __init__(self) -> None:
        self._taken: dict[int, float] = {}  # each signal to the time it last came

    def take(self, number: int, now: float) -> bool:
        """Return whether a signal is a request of its own.

        SIGHUP comes from a terminal or a session that closes, often together with
        SIGTERM. Neither is then a second request, as nobody is asking for a stop at
        once. `now` is the time in seconds.
        """
        before = self._taken
        if number in NOTICES and before:
            return False
        if number in before and now - before[number] < _SAME_SECS:
            return False
        self._taken = {**before, number: now}
        is_sequel = bool(before) and before.keys() <= {*NOTICES}
        return number != signal.SIGTERM or not is_sequel


class SignalPipe:
    """Receives the number of each signal, even while Python runs no handler.

    What the program has set by `signal.set_wakeup_fd` receives them too. Make it, and
    call `restore`, in the main thread.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        # Unlike `select`, it takes descriptors above 1,023.
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._of_program = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def wait(self, secs: float | None) -> bool:
        """Wait for a signal, or for `write`; None for no limit."""
        limit = None if secs is None else min(1000 * secs, 1 << 30)
        return bool(self._poll.poll(limit))

    def read(self) -> bytes:
        """Return what has come since the last call; never blocks."""
        try:
            data = os.read(self._reader, 4096)
        except BlockingIOError:
            return b""
        if self._of_program != -1:
            with contextlib.suppress(OSError):  # the program no longer reads them
                os.write(self._of_program, data.translate(None, b"\0\xff"))
        return data

    def write(self, mark: bytes) -> None:
        """Write a mark that is no number of a signal: 0 or 255."""
        with contextlib.suppress(OSError):  # full, so that there is enough to read
            os.write(self._writer, mark)

    def restore(self) -> None:
        """Restore the program's descriptor, unless it has set another one since."""
        try:
            current = signal.set_wakeup_fd(self._of_program)
        except (OSError, ValueError):  # it has closed its own
            current = signal.set_wakeup_fd(-1)
        if current != self._writer:
            signal.set_wakeup_fd(current)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self._writer)


class StopSignals:
    """Handlers for the signals of `DEFAULTS` that can be installed and restored.

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
        self._has_taken = False
        self._watchdog: _Watchdog | None = None
        os.register_at_fork(after_in_child=self._forget)

    def install(self) -> None:
        """Install the handlers that the program lacks; call it in the main thread only.

        Raises:
            ConfigError: If the grace period is not a number of seconds.
        """
        grace_secs = self._grace_secs()
        for number, default in DEFAULTS.items():
            if signal.getsignal(number) == default and not is_caught_in_c(number):
                signal.signal(number, self._handle)
                self._installed.append(number)
        self._has_taken = False
        self.grace.release_all()
        if self._installed:
            self._watchdog = _Watchdog(self, grace_secs)

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
        self._has_taken = False
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            # Its thread must end first, so that it has read all earlier signals.
            watchdog.stop()
            self.grace.forget()
            self._watchdog = _Watchdog(self, self._grace_secs())

    def has(self, number: int) -> bool:
        """Return whether this object handles a signal now; any thread may call it."""
        return number in self._installed and signal.getsignal(number) == self._handle

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        watchdog = self._watchdog
        if watchdog is not None:
            watchdog.look(handled=number)
        if not self._has_taken:
            self._has_taken = True
            self._take(number, True)
        elif watchdog is not None and number in watchdog.again:
            if number == signal.SIGINT:
                self._take(number, False)
            else:
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


def is_caught_in_c(number: int) -> bool:
    """Return whether code in C handles a notice, which Python does not know of.

    `faulthandler.register` does. Without /proc the result is False.
    """
    if number not in NOTICES:
        return False
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        caught = [line.split()[1] for line in status if line.startswith("SigCgt:")]
        return any(int(mask, 16) >> (number - 1) & 1 for mask in caught)
    return False


def end_unless_launched(number: int) -> None:
    """End the process on a second SIGTERM, unless a launcher will do so."""
    if not reporting.is_on():
        end_at_once(number)


def end_at_once(number: int) -> NoReturn:
    """End the process with the status of a signal, without any cleanup."""
    os._exit(STATUS_OF_SIGNALS + number)


class _Watchdog:
    """A thread that reads signals while the main thread is busy.

    Attributes:
        again: The signals that came as another request after the first one.
    """

    def __init__(self, signals: StopSignals, grace_secs: float) -> None:
        """Start the thread; call it in the main thread."""
        self._signals, self._grace_secs = signals, grace_secs
        self.again: set[int] = set()
        self._received: set[int | None] = set()  # by the pipe, and not handled yet
        self._requests = StopRequests()
        self._first: int | None = None
        self._is_first_handled = self._is_over = False
        # Reentrant: a handler may run in the thread that holds the lock.
        self._lock = threading.RLock()
        self._pipe = SignalPipe()
        self._thread = threading.Thread(
            target=self._run, name="estimator_runtime signals", daemon=True
        )
        self._thread.start()

    def look(self, handled: int | None = None) -> None:
        """Take note of the signals that have come since the last look.

        The time that counts is that at which a signal arrives: the main thread handles
        it only when the step in which it came has ended.

        Args:
            handled: The signal that the main thread handles now. The thread is woken,
                which acts on it. It counts even if the pipe has not received it: a
                program may set another wakeup descriptor, as asyncio does.
        """
        with self._lock:
            for number in self._pipe.read():
                if number == 0:
                    self._is_over = True
                elif self._signals.has(number):  # skips SIGCHLD and the program's
                    self._received.add(number)
                    self._count(number)
            if handled is not None and handled not in self._received:
                self._count(handled)
            self._received.discard(handled)
        if handled is not None:
            self._pipe.write(b"\xff")

    def stop(self) -> None:
        """End the thread."""
        self._pipe.restore()
        self._pipe.write(b"\0")
        self._thread.join(_JOIN_SECS)

    def abandon(self) -> None:
        """Close the descriptors in a forked child, which does not have the thread."""
        with contextlib.suppress(ValueError):
            self._pipe.restore()
        self._pipe.close()

    def _run(self) -> None:
        while not self._is_over:
            if self._pipe.wait(self._signals.grace.next_look_secs()):
                self.look()
                self._act()
            elif self._signals.grace.is_over:
                self._end_overdue()
        self._pipe.close()

    def _count(self, number: int) -> None:
        if not self._requests.take(number, time.monotonic()):
            return
        if self._first is None:
            self._first = number
        else:
            self.again.add(number)

    def _act(self) -> None:
        if signal.SIGTERM in self.again:
            end_unless_launched(signal.SIGTERM)
        if self._first is not None and not self._is_first_handled:
            self._is_first_handled = True
            # No grace period after Ctrl-C: the user can press it again.
            if self._first != signal.SIGINT:
                self._signals.grace.begin(self._grace_secs)
            self._signals.announce(self._first)

    def _end_overdue(self) -> None:
        _logger.error(
            "the training did not end within %g s after %s, not counting the time of "
            "saves; exiting without its last step",
            self._grace_secs,
            signal.Signals(self._first or 0).name,
        )
        end_at_once(self._first or 0)


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
