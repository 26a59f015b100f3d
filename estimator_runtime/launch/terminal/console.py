"""A console that shows the lines of all tasks, each prefixed with its task's name."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from estimator_runtime.output import json_log, terminal

# Colours of the terminal's own palette, which are legible on any background.
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94)
_OURS = "launcher"
# Used if the terminal reports no size, like pseudo-terminals of some containers.
_COLUMNS, _ROWS = 80, 24
# How long to wait for the reader of the last lines.
_FLUSH_SECS = 5.0
# Characters that wait to be written: from _MAX_WAITING on lines are left out, until
# there are fewer than _FEW.
_FEW, _MAX_WAITING = 1 << 20, 8 << 20
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
        can_unicode: Whether status rows may contain characters outside ASCII.
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
        streams: tuple[Any, ...] = (self._stdout, self._stderr)
        # Checked now, because the reader may have closed a stream later.
        self._has_colours = {each: terminal.has_colours(each) for each in streams}
        self.is_terminal = terminal.can_redraw(self._stderr) and not as_json
        encoding = getattr(self._stderr, "encoding", None) or ""
        self.can_unicode = encoding.lower().startswith("utf")
        self._writers = _writers_of(streams, self._left_out)
        self._colours: dict[str, int] = {}
        self._rows: list[str] = []
        self._lock = threading.Lock()
        self.width = len(_OURS)

    @property
    def columns(self) -> int:
        """The maximum number of characters in a row, without its prefix."""
        # One column stays free, because a row that wraps could not be erased.
        return max(1, self._size()[0] - 1 - len(self._prefix("")))

    def introduce(self, names: Sequence[str]) -> None:
        """Set the width of the prefix and the colours for tasks of these names."""
        self.width = max(map(len, (_OURS, *names)))
        self._colours = {
            name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)
        }

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
            text = f"{self._coloured_prefix(name, stream)}{line}\n"
        with self._lock:
            self._put(self._stderr, self._erasure())
            self._put(stream, text, is_ours=name == _OURS)
            self._put(self._stderr, self._drawing())

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
            self._put(self._stderr, f"estimator-runtime: {verdict}\n", is_ours=True)
        self.flush()

    def flush(self, timeout_secs: float = _FLUSH_SECS) -> None:
        """Wait until everything is written; leave out what is not read in time."""
        for each in self._writers.values():
            each.drain(timeout_secs)

    def status(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show rows below the lines of a terminal; write nothing elsewhere.

        Each row is a pair (name, text); one with the name "" has no prefix. They
        replace the present rows. If there are too many for the terminal, some are left
        out, but never the last.
        """
        if self.is_terminal:
            with self._lock:
                erasure, self._rows = self._erasure(), self._fitted(rows)
                self._put(self._stderr, f"{erasure}{self._drawing()}")

    def keep_status(self) -> None:
        """Leave the present rows on the terminal for good; lines go below them."""
        with self._lock:
            if self._rows:
                self._rows = []
                self._put(self._stderr, "\n")

    def _left_out(self) -> str:
        """Return the line that stands for those that were left out."""
        if self.as_json:
            return f"{json_log.as_json(_OURS, _LEFT_OUT, self._clock(), 'warning')}\n"
        return f"{_LEFT_OUT}\n"

    def _put(self, stream: Any, text: str, is_ours: bool = False) -> None:
        if stream is None or not text:  # this process was started without it
            return
        if stream in self._writers:
            self._writers[stream].write(text, is_ours)
            return
        # The reader may have closed the stream. The job and its log files continue.
        with contextlib.suppress(OSError, ValueError):
            stream.write(text)
            stream.flush()

    def _fitted(self, rows: Sequence[tuple[str, str]]) -> list[str]:
        columns, height = self._size()
        room = max(1, height - 1)
        if len(rows) > room:
            left_out = len(rows) - room + 1
            more = [("", f"... and {left_out} more")] if room > 1 else []
            rows = [*rows[: max(0, room - 2)], *more, rows[-1]]
        fitted = []
        for name, text in rows:
            prefix = self._prefix(name) if name else ""
            text = text[: max(0, columns - 1 - len(prefix))]
            if name:
                prefix = self._coloured_prefix(name, self._stderr)
            fitted.append(f"{prefix}{text}")
        return fitted

    def _erasure(self) -> str:
        """Return the control sequence that erases the rows.

        The cursor must be at the end of the last row.
        """
        up = len(self._rows) - 1
        return f"\x1b[{up}A\r\x1b[J" if up > 0 else "\r\x1b[K" if self._rows else ""

    def _drawing(self) -> str:
        return "\n".join(self._rows)

    def _prefix(self, name: str) -> str:
        return f"{name:<{self.width}} | "

    def _coloured_prefix(self, name: str, stream: Any) -> str:
        prefix = self._prefix(name)
        if self._has_colours[stream] and name in self._colours:
            return f"\x1b[{self._colours[name]}m{prefix}\x1b[0m"
        return prefix

    def _size(self) -> os.terminal_size:
        """Return the present columns and rows of the terminal."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            size = os.get_terminal_size(self._stderr.fileno())
            if size.columns and size.lines:
                return size
        return shutil.get_terminal_size((_COLUMNS, _ROWS))


class _Writer:
    """Writes texts to a file in their order, without waiting for its reader.

    A thread writes to the raw file below a stream: one that waited for the reader while
    it held the lock of Python's buffered stream would keep this process from exiting.

    Args:
        stream: A stream.
        raw: The file below it.
        left_out: Returns the line that stands for those that were left out.

    Attributes:
        waiting: How many characters wait to be written.
    """

    def __init__(
        self, stream: Any, raw: io.FileIO, left_out: Callable[[], str]
    ) -> None:
        self._raw, self._encoding = raw, stream.encoding or "utf-8"
        self._left_out = left_out
        self._texts: collections.deque[str] = collections.deque()
        self.waiting = 0
        self._leaves_out = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        with contextlib.suppress(OSError, ValueError):
            stream.flush()  # earlier output comes first

    def write(self, text: str, is_ours: bool = False) -> None:
        """Write a text; if too much is waiting it is left out, and a line says so.

        The launcher's own lines, which are few, are never left out.
        """
        with self._changed:
            is_full = self.waiting >= (_FEW if self._leaves_out else _MAX_WAITING)
            if is_full and not is_ours:
                self._leaves_out = True
                return
            if self._leaves_out:
                self._leaves_out = False
                self._add(self._left_out())
            self._add(text)

    def drain(self, timeout_secs: float) -> None:
        """Wait until everything is written; leave out what is not written in time."""
        with self._changed:
            if self._changed.wait_for(lambda: not self.waiting, timeout_secs):
                return
            self.waiting -= sum(map(len, self._texts))
            if self._texts:
                self._texts.clear()
                self._leaves_out = False
                self._add(self._left_out())

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self.waiting += len(text)
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="estimator_runtime console", daemon=True
            )
            self._thread.start()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._texts)
                text = self._texts.popleft()
            # The reader may have closed the file. The job and its log files continue.
            with contextlib.suppress(OSError, ValueError):
                self._write(text.encode(self._encoding, "backslashreplace"))
            with self._changed:
                self.waiting -= len(text)
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        while data:
            count = self._raw.write(data)
            if count is None:  # another process has made the file non-blocking
                time.sleep(_RETRY_SECS)
            else:
                data = data[count:]


def _writers_of(
    streams: Sequence[Any], left_out: Callable[[], str]
) -> dict[Any, _Writer]:
    """Return a writer for each stream that is a file of the operating system.

    Other streams never wait. Streams of the same file share one writer, which keeps
    their output in order.
    """
    writers: dict[Any, _Writer] = {}
    of_file: dict[tuple[int, int], _Writer] = {}
    for stream in streams:
        raw = _raw(stream)
        if raw is not None:
            status = os.fstat(raw.fileno())
            file = status.st_dev, status.st_ino
            of_file[file] = of_file.get(file) or _Writer(stream, raw, left_out)
            writers[stream] = of_file[file]
    return writers


def _raw(stream: Any) -> io.FileIO | None:
    """Return the file of the operating system below a stream, if there is one."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, io.FileIO) and not raw.closed else None
