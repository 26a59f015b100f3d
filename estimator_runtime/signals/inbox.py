"""Receives the signals that stop a process, where the program handles none itself.

Every process of a job has such an inbox: trainers, parameter servers, the process that
forks the tasks, and the launcher. Standard library only, for that reason.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn

# Signals of which SIGTERM may be the sequel, so that it is no second request. The user
# signals are what `sbatch --signal` names, and SIGXCPU follows from `ulimit -t`.
NOTICES = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
STOP_SIGNALS = (signal.SIGTERM, *NOTICES, signal.SIGINT)
STATUS_OF_SIGNALS = 128
# The same signal twice within this time is one request: nobody presses Ctrl-C that
# fast. But `timeout` of GNU coreutils signals a program and then its process group,
# wrappers forward what the terminal has sent to all, and batch scripts what the
# scheduler has.
_SAME_SECS = 0.1


class StopRequests:
    """Separates requests to stop from signals that merely accompany one.

    The first request asks for a graceful stop. Each later one asks for a stop at once.
    """

    def __init__(self) -> None:
        self._taken: dict[int, float] = {}  # each signal to the time it last came

    def take(self, number: int, now: float) -> bool:
        """Return whether a signal is a request of its own.

        SIGHUP comes from a terminal or a session that closes, often together with
        SIGTERM. Neither is then a second request, as nobody is asking for a stop at
        once. The same holds for the signals that announce a time limit. `now` is the
        time in seconds.
        """
        before = self._taken
        if number in NOTICES and before:
            return False
        if number in before and now - before[number] < _SAME_SECS:
            return False
        self._taken = {**before, number: now}
        is_sequel = bool(before) and before.keys() <= {*NOTICES}
        return number != signal.SIGTERM or not is_sequel


class SignalInbox:
    """Handles signals for which the program has no handler, until `close`.

    Python calls a handler only between two bytecode instructions of the main thread, so
    never while a step hangs in TensorFlow. Any thread can `wait` for a signal and
    `read` it even then: Python writes its number to a wakeup descriptor when it
    arrives. A wakeup descriptor of the program gets its signals as before.

    An ignored signal stays ignored. A forked child gets the default handlers back.
    Create and close an inbox in the main thread.

    Args:
        handle: The handler.
        numbers: The signals to handle.

    Attributes:
        numbers: Those of them that the program does not handle.
    """

    def __init__(
        self,
        handle: Callable[[int, FrameType | None], object],
        numbers: Iterable[int] = STOP_SIGNALS,
    ) -> None:
        self._handle = handle
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Unlike `select`, it takes descriptors above 1,023.
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._of_program = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self.numbers = tuple(
            number
            for number in numbers
            if signal.getsignal(number) == _default(number) and not _is_in_c(number)
        )
        for number in self.numbers:
            signal.signal(number, handle)
        self._is_open = True
        _open.add(self)

    def has(self, number: int) -> bool:
        """Return whether this inbox handles a signal now; any thread may call it."""
        return number in self.numbers and signal.getsignal(number) == self._handle

    def fileno(self) -> int:
        """Return the descriptor that can be read when a signal has come."""
        return self._reader

    def wait(self, secs: float | None) -> bool:
        """Wait for a signal, or for `wake`; None for no limit."""
        limit = None if secs is None else min(1000 * secs, 1 << 30)
        return bool(self._poll.poll(limit))

    def wake(self) -> None:
        """End a `wait` in another thread."""
        with contextlib.suppress(OSError):  # full, so that there is enough to read
            os.write(self._writer, b"\0")

    def read(self) -> list[int]:
        """Return the signals that have come since the last call; never blocks.

        Only those that this inbox handles are among them.
        """
        try:
            data = os.read(self._reader, 4096).replace(b"\0", b"")
        except BlockingIOError:
            return []
        if self._of_program != -1:
            with contextlib.suppress(OSError):  # the program no longer reads them
                os.write(self._of_program, data)
        return [number for number in data if self.has(number)]

    def restore(self) -> None:
        """Restore handlers and descriptor, unless the program has set its own since."""
        for number in self.numbers:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, _default(number))
        try:
            current = signal.set_wakeup_fd(self._of_program)
        except (OSError, ValueError):  # the program has closed its own
            current = signal.set_wakeup_fd(-1)
        if current != self._writer:
            signal.set_wakeup_fd(current)

    def close(self) -> None:
        """Restore the handlers, and close the pipe; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            _open.discard(self)
            self.restore()
            os.close(self._reader)
            os.close(self._writer)


def end_at_once(number: int) -> NoReturn:
    """End the process with the status of a signal, without any cleanup."""
    os._exit(STATUS_OF_SIGNALS + number)


def _default(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _is_in_c(number: int) -> bool:
    """Return whether code in C handles a notice, which Python does not know of.

    `faulthandler.register` does. Without /proc the result is False.
    """
    if number not in NOTICES:
        return False
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        caught = [line.split()[1] for line in status if line.startswith("SigCgt:")]
        return any(int(mask, 16) >> (number - 1) & 1 for mask in caught)
    return False


_open: weakref.WeakSet[SignalInbox] = weakref.WeakSet()


def _close_in_child() -> None:
    for inbox in tuple(_open):
        inbox.close()


os.register_at_fork(after_in_child=_close_in_child)
