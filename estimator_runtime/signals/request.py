"""Stop requests: a signal stops a training after a step, and saves a checkpoint of it.

Without this, SIGTERM ends a process in the middle of a step, and everything since the
last checkpoint is lost. While a training runs in the main thread, SIGTERM, SIGHUP (a
lost connection), SIGUSR1, SIGUSR2, SIGXCPU (a time limit) and a first Ctrl-C only
request a stop, unless the program has a handler of its own. The session then ends as it
does after its last step. After that, SystemExit(128 + the number), or KeyboardInterrupt
for Ctrl-C, is raised, so that no caller mistakes the training for a finished one. If no
session is open, there is nothing to save, and the exception is raised at once.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from estimator_runtime import reporting, threads
from estimator_runtime.config import waits
from estimator_runtime.config.paths import step_of
from estimator_runtime.signals import exit
from estimator_runtime.signals.grace import Grace
from estimator_runtime.signals.inbox import SignalInbox, StopRequests, end_at_once

_logger = logging.getLogger(__name__)
_MARK = "estimator_runtime_preempted"
_SUMMARY = "estimator_runtime_summary"
_AGAIN = "; the same again ends the program at once"
# How long a main thread that creates a session may take to handle a signal.
_CREATION_SECS = 1.0
_JOIN_SECS = 5.0


class Watch:
    """A period in which signals request an orderly stop, until `end` is called.

    A watch does nothing outside the main thread. Several watches may overlap.

    Args:
        has_session: Whether a session is open, or a stop has something to save for
            another reason. If not, a signal ends the program at once.
        saves: Whether this process saves a checkpoint when it stops.

    Attributes:
        has_session: As given; may be changed later.
        saves: As given.
        is_on: Whether the watch has not ended, and this is the thread that handles
            signals.
    """

    def __init__(self, has_session: bool = True, saves: bool = False) -> None:
        self.has_session, self.saves = has_session, saves
        self.is_on = threading.current_thread() is threading.main_thread()
        if self.is_on:
            _request.begin(self)

    @property
    def is_requested(self) -> bool:
        """Whether the training should stop at the end of this step."""
        return _request.number is not None and self.is_on

    def leave(self) -> None:
        """End the program if a stop was requested, and at once if one comes later.

        Call it where it turns out that nothing has to be saved; see `leave` below.
        """
        self.has_session = False  # first, so that no signal falls between the two
        leave()

    def hold(self) -> None:
        """Suspend the grace period until this watch ends, or all watches are ended."""
        _request.grace.hold(self)

    def end(self) -> None:
        """Stop watching for signals; a second call does nothing."""
        _request.grace.release(self)
        if self.is_on:
            self.is_on = False
            _request.end(self)


def is_requested() -> bool:
    """Return whether a training in this process should stop after its current step."""
    return _request.number is not None


def requested() -> int | None:
    """Return the number of the signal that requested a stop, or None."""
    return _request.number


def request(number: int) -> None:
    """Request a stop on behalf of another task, as the signal `number` would."""
    if _request.number is None:
        _request.number = number


def is_hurried() -> bool:
    """Return whether a second signal has arrived, so the main thread must not wait.

    The result stays True until another training begins. In other threads it is False.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return _request.is_hurried and is_main


def leave(saved: str | None = None) -> None:
    """End the program if a stop was requested; call it when everything is saved.

    Args:
        saved: Path, without suffix, of the checkpoint of the last step; "" if the
            stopped training saves no checkpoints; None if no step was running.

    Raises:
        SystemExit: With 128 + the number of the signal, such as 143 for SIGTERM.
        KeyboardInterrupt: For SIGINT. Python then ends a program with status 130, and
            a notebook remains usable.
    """
    number = _request.fulfil()
    if number is None:
        return
    stopped, remedy = _stop_summary(signal.Signals(number).name, saved)
    if number == signal.SIGINT:
        error: BaseException = KeyboardInterrupt(stopped)
    else:
        error = SystemExit(128 + number)
    setattr(error, _MARK, True)
    setattr(error, _SUMMARY, (stopped, remedy))
    raise error


def give_up() -> NoReturn:
    """End the program as the signal does by default, and save nothing.

    Raises:
        KeyboardInterrupt: For SIGINT; other signals end the process.
    """
    number, _request.number = _request.number, None
    if number is not None and number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    raise KeyboardInterrupt


def is_stop(error: BaseException | None) -> bool:
    """Return whether an exception was raised by `leave`."""
    return getattr(error, _MARK, False)


def summary(error: BaseException | None) -> tuple[str, ...]:
    """Return lines that describe how a training stopped; () for other exceptions.

    A command prints them instead of a traceback, because the stop was requested.
    """
    return getattr(error, _SUMMARY, ())


def _stop_summary(name: str, saved: str | None) -> tuple[str, str]:
    """Return how a signal stopped a training, and how to resume it."""
    again = "run the same command again to go on"
    if saved is None:
        return f"stopped by {name}; no step was under way here", again
    if not saved:
        return (
            f"stopped by {name} after a step; no checkpoint of it was saved here",
            f"{again} from the newest checkpoint, if there is one",
        )
    step = step_of(saved)
    place = "after a step" if step is None else f"at step {step}"
    return f"stopped by {name} {place}; it is saved in {saved}", f"{again} from there"


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """Suspend the grace period while this context saves a checkpoint."""
    grace, holder = _request.grace, object()
    grace.hold(holder)
    try:
        yield
    finally:
        grace.release(holder)


@contextlib.contextmanager
def creating_session() -> Iterator[None]:
    """Make a signal end the program at once while this context waits in native code.

    Nothing has to be saved yet. TensorFlow waits there for the other tasks, and Python
    handles no signal meanwhile.
    """
    _request.is_attended = is_attended = threading.Event()
    try:
        yield
    finally:
        is_attended.set()


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Make signals stop the trainings in this context in an orderly way; see `leave`.

    Raises:
        SystemExit, KeyboardInterrupt: As for `leave`, once the training is saved, or at
            once if no session is open.
    """
    watch = Watch(has_session=False)
    is_outermost = _request.is_only(watch)
    try:
        yield
    finally:
        if is_outermost:
            _request.end_all()
        watch.end()
    if is_outermost:
        leave()


class _StopRequest:
    """The request to stop the training in this process, if any; a singleton.

    A thread reads the signals when they arrive. It ends the process where a handler
    cannot, because the main thread is busy in TensorFlow: on a second SIGTERM, or when
    the grace period is over. Under our launcher, a second SIGTERM repeats the first
    request: one of them is sent to all processes of the job, and the other comes from
    the launcher, which sends SIGKILL when the time is up.
    """

    def __init__(self) -> None:
        self._watches: list[Watch] = []
        self._inbox: SignalInbox | None = None
        self.is_hurried = False
        self._reset()
        os.register_at_fork(after_in_child=self._end_in_child)

    def _reset(self) -> None:
        self.number: int | None = None
        self.grace = Grace()
        # Set unless a session is being created and the main thread has seen no signal.
        self.is_attended = threading.Event()
        self.is_attended.set()
        # Reentrant: a handler may run in the thread that holds the lock.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._forget()

    def _forget(self) -> None:
        """Treat the next signal as a first one."""
        self._requests = StopRequests()
        self._received: set[int] = set()  # by the inbox, and not handled yet
        self._again: set[int] = set()  # those that came as another request
        self._first: int | None = None
        self._is_first_handled = self._is_first_announced = False

    def begin(self, watch: Watch) -> None:
        self.is_hurried = False
        if not self._watches:
            self._open()
        self._watches.append(watch)

    def is_only(self, watch: Watch) -> bool:
        return self._watches == [watch]

    def end(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
            self._close_if_unused()

    def end_all(self) -> None:
        """End all watches, including those of sessions that an error left open."""
        self._watches.clear()
        self._close_if_unused()

    def fulfil(self) -> int | None:
        """Return the signal of the request, which is fulfilled now, or None."""
        number, self.number = self.number, None
        if number is not None:
            self._look()  # so that no earlier signal counts as the next request
            with self._lock:
                self._forget()
                self.grace.forget()
        return number

    def _open(self) -> None:
        grace_secs = waits.stop_grace_secs()
        self._forget()
        self.grace.release_all()
        inbox = SignalInbox(self._handle)
        if not inbox.numbers:  # the program handles all signals
            inbox.close()
            return
        self._inbox = inbox
        self._thread = threads.start("signals", self._serve, inbox, grace_secs)

    def _close_if_unused(self) -> None:
        # A session that was never closed may be garbage-collected in any thread.
        is_main = threading.current_thread() is threading.main_thread()
        inbox, thread = self._inbox, self._thread
        if self._watches or not is_main or inbox is None or thread is None:
            return
        inbox.restore()  # first, so that a signal that has already arrived is handled
        self._inbox = self._thread = None
        inbox.wake()
        thread.join(_JOIN_SECS)
        inbox.read()  # gives the program's descriptor its signals
        inbox.close()
        self.grace.forget()

    def _end_in_child(self) -> None:
        """Watch for nothing in a forked child, where there is no thread."""
        self._watches, self._inbox = [], None
        self._reset()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        inbox = self._inbox
        self._look(handled=number)
        if inbox is not None:
            inbox.wake()  # the thread acts on it
        if not self._is_first_handled:
            self._is_first_handled = True
            self.is_attended.set()
            if self.number is None:
                self.number = number
            if not self._has_session():
                leave()
        elif number in self._again and number == signal.SIGINT:
            self.is_attended.set()
            self._interrupt()
        elif number in self._again:
            _end_unless_launched(number)

    def _interrupt(self) -> NoReturn:
        """Raise KeyboardInterrupt: the user does not want to wait."""
        self.fulfil()
        self.is_hurried = True
        error = KeyboardInterrupt("stopped by a second SIGINT")
        lines = (
            "stopped by a second SIGINT; the last step was not saved",
            "run the same command again to go on from the newest checkpoint",
        )
        setattr(error, _SUMMARY, lines)
        raise error

    def _look(self, handled: int | None = None) -> None:
        """Count the signals that have come since the last look.

        The time that counts is that at which a signal arrives: the main thread handles
        it only when the step in which it came has ended.

        Args:
            handled: The signal that the main thread handles now. It counts even if the
                inbox has not received it: a program may set another wakeup descriptor,
                as asyncio does.
        """
        with self._lock:
            for number in self._inbox.read() if self._inbox else ():
                self._received.add(number)
                self._count(number)
            if handled is not None and handled not in self._received:
                self._count(handled)
            self._received -= {handled}

    def _count(self, number: int) -> None:
        if not self._requests.take(number, time.monotonic()):
            return
        if self._first is None:
            self._first = number
        else:
            self._again.add(number)

    def _serve(self, inbox: SignalInbox, grace_secs: float) -> None:
        """Act on signals in the thread, until another inbox takes the place of this."""
        while self._inbox is inbox:
            if inbox.wait(self.grace.next_look_secs()):
                self._look()
                self._act(grace_secs)
            elif self.grace.is_over:
                _logger.error(
                    "the training did not end within %g s after %s, not counting the "
                    "time of saves; exiting without its last step",
                    grace_secs,
                    signal.Signals(self._first or 0).name,
                )
                end_at_once(self._first or 0)

    def _act(self, grace_secs: float) -> None:
        if signal.SIGTERM in self._again:
            _end_unless_launched(signal.SIGTERM)
        with self._lock:
            first, is_new = self._first, not self._is_first_announced
            if first is None or not is_new:
                return
            self._is_first_announced = True
        # No grace period after Ctrl-C: the user can press it again. Without the lock,
        # because a handler may take it while its thread holds that of the grace period.
        if first != signal.SIGINT:
            self.grace.begin(grace_secs)
        self._announce(first)

    def _announce(self, number: int) -> None:
        if not self._has_session() and not self.is_attended.wait(_CREATION_SECS):
            text = "%sending before there is a session; nothing had to be saved"
            exit.call_and_flush(lambda: _logger.warning(text, _reason(number)))
            end_at_once(number)
        if self._has_session():
            # Under a launcher, a second signal goes to the launcher, not to this task.
            again = "" if reporting.is_on() else _AGAIN
            # Beside a chief, a worker can't know what will be saved.
            saves = any(watch.saves for watch in list(self._watches))
            _logger.warning(
                "%sstopping after this step%s%s",
                _reason(number),
                ", with a checkpoint of it" if saves else "",
                again,
            )

    def _has_session(self) -> bool:
        return any(watch.has_session for watch in list(self._watches))


def _end_unless_launched(number: int) -> None:
    """End the process on a second SIGTERM, unless a launcher will do so."""
    if not reporting.is_on():
        end_at_once(number)


def _reason(number: int) -> str:
    """Return how a line begins; that of a launcher is not a signal of the user's."""
    is_of_launcher = number == signal.SIGTERM and reporting.is_on()
    return "" if is_of_launcher else f"{signal.Signals(number).name}: "


_request = _StopRequest()
