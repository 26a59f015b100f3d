"""A thread for file operations, so that a disk that hangs stops no supervision."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_Result = TypeVar("_Result")

# How long to wait for an operation. A healthy disk takes milliseconds.
_ANSWER_SECS = 2.0
_POLL_SECS = 0.2
# How long to wait for all operations of a slow disk at the end.
_DRAIN_SECS = 15.0
# Files that have not answered for so long are named in the log.
_NAMED_SECS = 15.0
# Characters that wait to be written: from _BEHIND on the disk counts as behind, and
# from _MAX_WAITING on there is no room for more.
_BEHIND, _MAX_WAITING = 1 << 20, 8 << 20


class FileThread:
    """Runs file operations in order, on a thread that the first one starts.

    An operation on a frozen disk, or on a file server that is gone, may never end. The
    thread that uses this class then goes on without its result. Any thread may call
    `do`, and only one the other methods.

    Args:
        what: The files, for the user.
        say: Receives each line that is for the user.
        answer_secs: How long to wait for an operation.
        is_vital: Whether `check` raises what an operation has raised. If not, it is
            named, and the later operations go on.
    """

    def __init__(
        self,
        what: str,
        say: Callable[[str], None],
        answer_secs: float = _ANSWER_SECS,
        is_vital: bool = True,
    ) -> None:
        self._is_vital, self._is_failure_named = is_vital, False
        self._what, self._say, self._answer_secs = what, say, answer_secs
        self._calls: queue.SimpleQueue[
            tuple[Future[Any], Callable[[], Any], int] | None
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # Counts of operations, and of their characters. Only the thread writes the
        # second of each pair.
        self._added = self._done = self._size_added = self._size_done = 0
        self._hung_at: int | None = None  # the count of `_done` when a wait ran out
        self._seen, self._seen_at, self._is_named = -1, 0.0, False
        self._failure: BaseException | None = None

    @property
    def is_hung(self) -> bool:
        """Whether an operation has run into a timeout, and none has ended since."""
        return self._hung_at == self._done != self._added

    @property
    def has_room(self) -> bool:
        """Whether there is room for more lines."""
        return self._size_added - self._size_done < _MAX_WAITING

    def is_behind(self) -> bool:
        """Return whether so many lines are waiting that callers should pause.

        Nobody should pause for files that have been named as hung.
        """
        return self._size_added - self._size_done >= _BEHIND and not self._is_named

    def do(self, operation: Callable[[], _Result], size: int = 0) -> Future[_Result]:
        """Run an operation after the earlier ones; never blocks.

        `size` is how many characters the operation writes.
        """
        future: Future[_Result] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="estimator_runtime files", daemon=True
                )
                self._thread.start()
            self._added += 1
            self._size_added += size
            self._calls.put((future, operation, size))
        return future

    def wait(
        self, future: Future[Any], goes_on: Callable[[], bool] | None = None
    ) -> bool:
        """Wait for an operation, and return whether it has ended.

        Without `goes_on` the wait lasts `answer_secs` at most, once for each operation
        that hangs. Otherwise it lasts as long as `goes_on` returns True.
        """
        if goes_on is not None:
            while True:
                concurrent.futures.wait([future], _POLL_SECS)
                if future.done() or not goes_on():
                    break
        elif not self.is_hung:
            concurrent.futures.wait([future], self._answer_secs)
        if not future.done():
            self._hung_at = self._done
        return future.done()

    def ask(
        self,
        operation: Callable[[], _Result],
        default: _Result,
        goes_on: Callable[[], bool] | None = None,
    ) -> _Result:
        """Return the result of an operation, or `default` if it does not come in time.

        While an earlier operation hangs, it is not even tried, unless there is a
        `goes_on`, which is that of `wait`.
        """
        if goes_on is None and self.is_hung:
            return default
        future = self.do(operation)
        return future.result() if self.wait(future, goes_on) else default

    def check(self, now: float) -> None:
        """Name files that have not answered for long, and those that answer again.

        Call this repeatedly; `now` is the time in seconds.

        Raises:
            BaseException: What an operation has raised, if the files are vital.
        """
        if self._failure is not None and self._is_vital:
            raise self._failure
        if self._failure is not None and not self._is_failure_named:
            self._is_failure_named = True
            self._say(f"{self._what}: {self._failure!r}; the job goes on")
        if self._added == self._done or self._done != self._seen:
            if self._is_named:
                self._say(f"{self._what}: there is an answer again")
            self._seen, self._seen_at, self._is_named = self._done, now, False
        elif now - self._seen_at >= _NAMED_SECS and not self._is_named:
            self._is_named = True
            self._say(
                f"{self._what}: no answer for {now - self._seen_at:.0f} s (is the disk "
                "frozen, or the file server gone?); the job goes on without"
            )

    def drain(self) -> bool:
        """Wait for all operations, and return whether they have ended.

        That takes as long as one after the other ends, but not for ever.
        """
        if self._thread is None:
            return True
        last = self.do(lambda: None)
        deadline = time.monotonic() + _DRAIN_SECS
        while not self.is_hung and time.monotonic() < deadline:
            done = self._done
            if concurrent.futures.wait([last], self._answer_secs).done:
                break
            if self._done == done:
                self._hung_at = done
        return last.done()

    def close(self) -> None:
        """End the thread after the last operation, and wait for that for a while."""
        if self._thread is not None:
            self.drain()
            self._calls.put(None)
            self._thread.join(0 if self.is_hung else self._answer_secs)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, operation, size = call
            try:
                future.set_result(operation())
            except BaseException as error:  # noqa: BLE001 - raised by `check`, `ask`
                self._failure = error
                future.set_exception(error)
            self._size_done += size
            self._done += 1
