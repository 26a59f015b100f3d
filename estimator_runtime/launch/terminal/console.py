"""A console that shows the lines of all tasks, each prefixed with its task's name."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from estimator_runtime.launch.terminal.stream_writer import (
    StreamWriter,
    without_waiting,
)
from estimator_runtime.output import json_log, terminal

# Colours of the terminal's own palette, which are legible on any background.
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94)
_OURS = "launcher"
_CLEAR = "\r\x1b[K"
# Used if the terminal reports no size, like pseudo-terminals of some containers.
_COLUMNS, _ROWS = 80, 24
# How long to wait for the reader of the last lines.
_FLUSH_SECS = 5.0


class Console:
    """The two output streams that the tasks and the launcher share.

    It is thread-safe. Writing never waits for the reader of a stream: see
    `stream_writer`.

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
        pinned: Lines that stay in view with the status rows, such as the address of
            TensorBoard.
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
        self._stdout = without_waiting(stdout or sys.stdout)
        self._stderr = without_waiting(stderr or sys.stderr)
        # Checked now, because the reader may have closed a stream later.
        streams: tuple[Any, ...] = (self._stdout, self._stderr)
        self._has_colours = {each: terminal.has_colours(each) for each in streams}
        self.is_terminal = terminal.can_redraw(self._stderr) and not as_json
        encoding = getattr(self._stderr, "encoding", None) or ""
        self.can_unicode = encoding.lower().startswith("utf")
        self._colours: dict[str, int] = {}
        self._rows: list[str] = []
        self.pinned: list[str] = []
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
            if stream is self._stderr:
                _put(stream, f"{self._erasure()}{text}{self._drawing()}")
                return
            if self._rows:
                _put(self._stderr, self._erasure())
            _put(stream, text)
            if self._rows:
                _put(self._stderr, self._drawing())

    def say(self, line: str, level: str = "info") -> None:
        """Write one line of the launcher itself."""
        # JSON has its own escapes.
        text = line if self.as_json else terminal.printable(line)
        self.write(_OURS, text, level=level)

    def pin(self, line: str) -> None:
        """Write one line of the launcher, and keep it in view with the status rows."""
        self.pinned.append(line)
        self.say(line)

    def is_behind(self) -> bool:
        """Return whether so much output is waiting that callers should pause."""
        return any(writer.is_behind() for writer in self._writers())

    def flush(self, timeout_secs: float = _FLUSH_SECS) -> None:
        """Wait until everything is written, up to a timeout for each stream.

        Output that is not read in time is left out.
        """
        for writer in self._writers():
            writer.drain(timeout_secs)

    def _writers(self) -> list[StreamWriter]:
        streams = {self._stdout, self._stderr}
        return [each for each in streams if isinstance(each, StreamWriter)]

    def status(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show rows below the lines of a terminal; write nothing elsewhere.

        Each row is a pair (name, text); one with the name "" has no prefix. They
        replace the present rows. If there are too many for the terminal, some are left
        out, but never the last.
        """
        if not self.is_terminal:
            return
        with self._lock:
            erasure = self._erasure()
            self._rows = self._fitted(rows)
            _put(self._stderr, f"{erasure}{self._drawing()}")

    def keep_status(self) -> None:
        """Leave the present rows on the terminal for good; lines go below them."""
        with self._lock:
            if self._rows:
                self._rows = []
                _put(self._stderr, "\n")

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
        if not self._rows:
            return ""
        up = len(self._rows) - 1
        return f"\x1b[{up}A\r\x1b[J" if up else _CLEAR

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


def _put(stream: Any, text: str) -> None:
    if stream is None:  # this process was started without it
        return
    # The reader may have closed the stream. The job and its log files continue.
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()
