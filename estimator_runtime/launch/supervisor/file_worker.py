"""A thread for files, so that a disk that hangs stops neither restarts nor a stop."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from estimator_runtime import threads

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
        say: Receives each line that is for the user, in any thread.
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
        # Since when the same operation has been seen to run, and whether a wait for it
        # has run out.
        self._busy_since: float | None = None
        self._hangs = self._is_closed = self.is_named = False
        self._failure = ""

    def put(self, question: str, operation: Callable[[], Any]) -> None:
        """Run an operation as soon as possible, without waiting for it."""
        with self._changed:
            self._waiting[question] = operation
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threads.start("files", self._serve)

    def ask(
        self,
        question: str,
        operation: Callable[[], Any],
        goes_on: Callable[[], bool] | None = None,
    ) -> Any:
        """Return the answer of an operation, or None if it does not come in time.

        The next call for the same question returns a late answer. Do not `put` an
        operation under the name of a question.

        While the files hang, only the first call waits, unless `goes_on` is given: then
        the wait lasts as long as that returns True.
        """
        with self._changed:
            if self._has_ended(question) and question not in self._answers:
                self.put(question, operation)
        is_answered = self.wait(question, goes_on)
        return self._answers.pop(question) if is_answered else None

    def wait(self, question: str, goes_on: Callable[[], bool] | None = None) -> bool:
        """Wait for the operation of a question, and return whether it has ended."""
        is_over = functools.partial(self._has_ended, question)
        with self._changed:
            if goes_on is not None:
                while not self._changed.wait_for(is_over, _POLL_SECS) and goes_on():
                    pass
            elif not self._hangs:
                self._changed.wait_for(is_over, self._answer_secs)
            self._hangs = not is_over()
            return is_over()

    def _has_ended(self, question: str) -> bool:
        return question not in self._waiting and question != self._running

    def check(self, now: float) -> None:
        """Name files that have not answered for long; call this repeatedly."""
        with self._changed:
            since = self._busy_since
            if since is None and (self._running or self._waiting):
                self._busy_since = now
        if since is None and self.is_named:
            self.is_named = False
            self._say(f"{self._what}: there is an answer again")
        elif since is not None and now - since >= _NAMED_SECS and not self.is_named:
            self.is_named = True
            self._say(
                f"{self._what}: no answer for {now - since:.0f} s (is the disk frozen, "
                "or the file server gone?); the job goes on without"
            )

    def close(self) -> None:
        """End the thread after the last operation, and wait for that for a while."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and not self._hangs:
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
            except Exception as error:  # noqa: BLE001 - told, once
                before, self._failure = self._failure, repr(error)
                if self._failure != before:
                    self._say(f"{self._what}: {self._failure}; the job goes on")
            with self._changed:
                self._answers[self._running] = answer
                self._running = self._busy_since = None
                self._hangs = False
                self._changed.notify_all()
