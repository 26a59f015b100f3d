"""A console that shows the lines of all tasks, each prefixed with its task's name."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from estimator_runtime import threads
from estimator_runtime.output import json_log, terminal

_OURS = "launcher"
# A row that wraps could not be erased, also if the terminal adds "^C" to the last one.
_FREE_COLUMNS = 3
# How long to wait for the reader of the last lines.
_FLUSH_SECS = 5.0
# Lines that wait to be written: beyond _MOST they are left out, until _FEW are left.
_FEW, _MOST = 2_000, 20_000
_LEFT_OUT = "... lines left out here: they were not read in time ..."
_RETRY_SECS = 0.05


class Console:
    """The two output streams that the tasks and the launcher share.

    It is thread-safe. Writing never waits for the reader of a stream.

    Args:
        stdout: The stream for standard output; by default that of this process.
        stderr: The stream for standard error; by default that of this process.
        as_json: Whether each line is written as a JSON object: "time" (seconds since
            1970), "task" ("launcher" for lines of the launcher), "level" and "message".
        clock: Returns the seconds since 1970.

    Attributes:
        width: Width of the prefix in characters, up to the separator.
        is_terminal: Whether status rows can be shown below the lines.
        as_json: Whether lines are JSON objects; then there are no status rows.
    """

    def __init__(
        self,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        *,
        as_json: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.as_json, self._clock = as_json, clock
        self._stdout, self._stderr = stdout or sys.stdout, stderr or sys.stderr
        # Checked now, because the reader may have closed the stream later.
        self.is_terminal = terminal.can_redraw(self._stderr) and not as_json
        self._queue: queue.Queue[list[tuple[Any, str]]] = queue.Queue(_MOST)
        self._thread: threading.Thread | None = None
        self._leaves_out = False
        self._rows: list[str] = []
        self._lock = threading.Lock()
        self.width = len(_OURS)

    @property
    def columns(self) -> int:
        """The maximum number of characters in a row, without its prefix."""
        return max(1, self._size()[0] - _FREE_COLUMNS - len(self._prefix("")))

    def introduce(self, names: Sequence[str]) -> None:
        """Set the width of the prefix for tasks of these names."""
        self.width = max(map(len, (_OURS, *names)))

    def write(
        self, name: str, line: str, is_error: bool = True, level: str = "info"
    ) -> None:
        """Write one line of the task with this name, given without its line break.

        In JSON it has this level, unless it begins with one.
        """
        stream = self._stderr if is_error else self._stdout
        if self.as_json:
            text = f"{json_log.as_json(name, line, self._clock(), level)}\n"
        else:
            text = f"{self._prefix(name)}{line}\n"
        with self._lock:
            rows = "\n".join(self._rows)
            self._put(
                (self._stderr, self._erasure()), (stream, text), (self._stderr, rows)
            )

    def say(self, line: str, level: str = "info") -> None:
        """Write one line of the launcher itself."""
        # JSON has its own escapes.
        text = line if self.as_json else terminal.printable(line)
        self.write(_OURS, text, level=level)

    def conclude(self, verdict: str, is_failure: bool) -> None:
        """Write the last lines of a job, and wait a while until they are read."""
        if self.as_json:
            self.say(verdict, level="error" if is_failure else "info")
        else:
            with self._lock:
                self._put((self._stderr, f"estimator-runtime: {verdict}\n"))
        self.flush()

    def flush(self, timeout_secs: float = _FLUSH_SECS) -> None:
        """Wait until everything is written; leave out what is not read in time."""
        done = self._queue.all_tasks_done  # `join` would wait without a limit
        with done:
            if done.wait_for(lambda: not self._queue.unfinished_tasks, timeout_secs):
                return
        with self._lock, contextlib.suppress(queue.Empty):
            self._leaves_out = True
            while True:
                self._queue.get_nowait()
                self._queue.task_done()

    def status(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show rows below the lines of a terminal; write nothing elsewhere.

        Each row is a pair (name, text); one with the name "" has no prefix. They
        replace the present rows. If there are too many for the terminal, some are left
        out, but never the last.
        """
        if not self.is_terminal:
            return
        columns, height = self._size()
        room = max(1, height - 1)
        with self._lock:
            erasure = self._erasure()
            self._rows = [
                f"{self._prefix(name) if name else ''}{text}"[: columns - _FREE_COLUMNS]
                for name, text in [*rows[: room - 1], *rows[room - 1 :][-1:]]
            ]
            self._put((self._stderr, erasure + "\n".join(self._rows)))

    def keep_status(self) -> None:
        """Leave the present rows on the terminal for good; lines go below them."""
        with self._lock:
            if self._rows:
                self._rows = []
                self._put((self._stderr, "\n"))

    def _erasure(self) -> str:
        """Return the control sequence that erases the rows.

        The cursor must be at the end of the last row.
        """
        up = len(self._rows) - 1
        return f"\x1b[{up}A\r\x1b[J" if up > 0 else "\r\x1b[K" if self._rows else ""

    def _prefix(self, name: str) -> str:
        return f"{name:<{self.width}} | "

    def _size(self) -> os.terminal_size:
        """Return the present columns and rows of the terminal."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            size = os.get_terminal_size(self._stderr.fileno())
            if size.columns and size.lines:
                return size
        # Of 80 columns if no terminal reports a size, as in some containers.
        return shutil.get_terminal_size()

    def _put(self, *texts: tuple[Any, str]) -> None:
        """Queue texts for the writing thread; leave them out if too many wait.

        The caller holds the lock.
        """
        if self._thread is None:
            self._thread = threads.start("console", self._serve)
        if self._leaves_out:
            if self._queue.qsize() > _FEW:
                return
            line = _LEFT_OUT
            if self.as_json:
                line = json_log.as_json(_OURS, line, self._clock(), "warning")
            self._queue.put_nowait([(self._stderr, f"{line}\n")])
        try:
            self._queue.put_nowait(list(texts))
            self._leaves_out = False
        except queue.Full:
            self._leaves_out = True

    def _serve(self) -> None:
        while True:
            for stream, text in self._queue.get():
                # The reader may have closed the stream. The job and its logs go on.
                with contextlib.suppress(OSError, ValueError):
                    _write(stream, text)
            self._queue.task_done()


def _write(stream: Any, text: str) -> None:
    """Write a text to a stream, and wait for its reader.

    A file of the operating system is written to directly: a thread that waited for the
    reader while it held the lock of Python's stream would keep this process from
    ending.
    """
    if stream is None or not text:  # this process was started without it
        return
    stream.flush()  # what this process has written before comes first
    try:
        fd = stream.buffer.fileno()
    except (AttributeError, OSError):  # it is in memory, or a notebook's
        stream.write(text)
        stream.flush()
        return
    data = text.encode(stream.encoding, "backslashreplace")
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # another process has made the file non-blocking
            time.sleep(_RETRY_SECS)
