"""A thread for files, so that a disk that hangs stops neither restarts nor a stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

# How long to wait for an answer. A healthy disk takes milliseconds.
_ANSWER_SECS = 2.0
_POLL_SECS = 0.2
# Files that have not answered for so long are named in the log.
_NAMED_SECS = 15.0


class FileWorker:
    """Runs operations on files in one thread, which the first of them starts.

    An operation on a frozen disk, or on a file server that is gone, may never end. The
    supervisor then goes on without its answer. Each question has a slot for one
    operation that waits: a later one takes the place of an earlier one.

    Args:
        what: The files, for the user.
        say: Receives each line that is for the user.
        answer_secs: How long `ask` waits for an answer.

    Attributes:
        is_named: Whether the user has been told that the files do not answer.
    """

    def __init__(
        self,
        what: str,
        say: Callable[[str], None],
        answer_secs: float = _ANSWER_SECS,
    ) -> None:
        self._what, self._say, self._answer_secs = what, say, answer_secs
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._waiting: dict[str, Callable[[], Any]] = {}
        self._running: str | None = None
        self._answers: dict[str, Any] = {}
        self._late: dict[str, Callable[[], Any]] = {}  # operations that `ask` left
        self._done = 0
        self._hung_at: int | None = None  # the count of `_done` when a wait ran out
        self._seen, self._seen_at = -1, 0.0
        self._failure, self._told = "", ""
        self._is_closed = self.is_named = False

    def put(self, question: str, operation: Callable[[], Any]) -> None:
        """Run an operation as soon as possible, without waiting for it."""
        with self._changed:
            self._answers.pop(question, None)
            self._waiting[question] = operation
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="estimator_runtime files", daemon=True
                )
                self._thread.start()

    def ask(
        self,
        question: str,
        operation: Callable[[], Any],
        goes_on: Callable[[], bool] | None = None,
    ) -> Any:
        """Return the answer of an operation, or None if it does not come in time.

        A late answer is that of the next call for the same operation.

        While the files hang, only the first call waits, unless `goes_on` is given: then
        the wait lasts as long as that returns True.
        """
        is_asked_again = self._late.get(question) == operation
        self._late[question] = operation
        if not is_asked_again:
            self.put(question, operation)
        if not self.wait(question, goes_on):
            return None
        del self._late[question]
        return self._answers.pop(question, None)

    def wait(self, question: str, goes_on: Callable[[], bool] | None = None) -> bool:
        """Wait for the operation of a question, and return whether it has ended."""

        def is_over() -> bool:
            return question not in self._waiting and question != self._running

        with self._changed:
            if goes_on is not None:
                while not self._changed.wait_for(is_over, _POLL_SECS) and goes_on():
                    pass
            elif self._hung_at != self._done:
                self._changed.wait_for(is_over, self._answer_secs)
            self._hung_at = None if is_over() else self._done
            return is_over()

    def check(self, now: float) -> None:
        """Name files that have not answered for long; call this repeatedly."""
        if self._failure != self._told:
            self._told = self._failure
            self._say(f"{self._what}: {self._told}; the job goes on")
        is_idle = self._running is None and not self._waiting
        if is_idle or self._done != self._seen:
            if self.is_named:
                self._say(f"{self._what}: there is an answer again")
            self._seen, self._seen_at, self.is_named = self._done, now, False
        elif now - self._seen_at >= _NAMED_SECS and not self.is_named:
            self.is_named = True
            self._say(
                f"{self._what}: no answer for {now - self._seen_at:.0f} s (is the disk "
                "frozen, or the file server gone?); the job goes on without"
            )

    def close(self) -> None:
        """End the thread after the last operation, and wait for that for a while."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and self._hung_at is None:
            self._thread.join(self._answer_secs)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                self._running = next(iter(self._waiting))
                operation = self._waiting.pop(self._running)
            answer = None
            try:
                answer = operation()
            except Exception as error:  # noqa: BLE001 - told by `check`
                self._failure = repr(error)
            with self._changed:
                self._answers[self._running] = answer
                self._running, self._done = None, self._done + 1
                self._changed.notify_all()
