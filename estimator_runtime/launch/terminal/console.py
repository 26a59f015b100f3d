"""Writes the lines of all tasks to one terminal, each with the name of its task."""

import contextlib
import os
import shutil
import sys
import threading

from estimator_runtime import terminal
from estimator_runtime.launch.stream_writer import StreamWriter, without_waiting

# Of the terminal's own palette, so that they can be read on any background.
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94)
_OURS = "launcher"
_CLEAR = "\r\x1b[K"
# Of a terminal that does not know, as the pseudo-terminals of some containers do not.
_COLUMNS, _ROWS = 80, 24
# For who reads the last lines.
_FLUSH_SECS = 5.0


class Console:
    """Two streams that the tasks and the launcher write to; any thread may.

    Nobody waits for those who read them: see `stream_writer`.

    Attributes:
        width: Characters of the prefix, before the bar.
        is_terminal: Whether rows can be kept below the lines.
        can_unicode: Whether they may have more than ASCII.
    """

    def __init__(self, stdout=None, stderr=None):
        """Write to the streams of this process, or to those given."""
        self._stdout, self._stderr = without_waiting(
            stdout or sys.stdout, stderr or sys.stderr
        )
        # Asked now: later, whoever reads along may have closed them.
        streams = (self._stdout, self._stderr)
        self._has_colours = {each: terminal.has_colours(each) for each in streams}
        self.is_terminal = terminal.can_redraw(self._stderr)
        encoding = getattr(self._stderr, "encoding", None) or ""
        self.can_unicode = encoding.lower().startswith("utf")
        self._colours: dict[str, int] = {}
        self._rows: list[str] = []
        self._lock = threading.Lock()
        self.width = len(_OURS)

    @property
    def columns(self):
        """How many characters a row may have, beside its prefix."""
        # One less: a row that is wrapped could not be taken away again.
        return max(1, self._size()[0] - 1 - len(self._prefix("")))

    def introduce(self, names):
        """Let the prefixes have the width of the longest of these names."""
        self.width = max(map(len, (_OURS, *names)))
        self._colours = {
            name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)
        }

    def write(self, name, line, is_error=True):
        """Write one line of the task of this name."""
        stream = self._stderr if is_error else self._stdout
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

    def say(self, line):
        """Write one line of the launcher's own."""
        self.write(_OURS, line)

    def is_behind(self):
        """Tell whether so much waits for its reader that no more should come."""
        return any(writer.is_behind() for writer in self._writers())

    def flush(self, timeout_secs=_FLUSH_SECS):
        """Wait until all is written; what is not read in time is left out."""
        for writer in self._writers():
            writer.drain(timeout_secs)

    def _writers(self):
        streams = {self._stdout, self._stderr}
        return [each for each in streams if isinstance(each, StreamWriter)]

    def status(self, rows):
        """Keep rows below the lines, on a terminal; elsewhere write nothing.

        Args:
            rows: Each as (name, text), where a name of "" is for no prefix. Where they
                are too many for the terminal, some are left out, but never the last.
        """
        if not self.is_terminal:
            return
        with self._lock:
            erasure = self._erasure()
            self._rows = self._fitted(rows)
            _put(self._stderr, f"{erasure}{self._drawing()}")

    def _fitted(self, rows):
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

    def _erasure(self):
        """Give what takes the rows away; the cursor is at the end of the last."""
        if not self._rows:
            return ""
        up = len(self._rows) - 1
        return f"\x1b[{up}A\r\x1b[J" if up else _CLEAR

    def _drawing(self):
        return "\n".join(self._rows)

    def _prefix(self, name):
        return f"{name:<{self.width}} | "

    def _coloured_prefix(self, name, stream):
        prefix = self._prefix(name)
        if self._has_colours[stream] and name in self._colours:
            return f"\x1b[{self._colours[name]}m{prefix}\x1b[0m"
        return prefix

    def _size(self):
        """Give the columns and the rows of the terminal as it is now."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            size = os.get_terminal_size(self._stderr.fileno())
            if size.columns and size.lines:
                return size
        return shutil.get_terminal_size((_COLUMNS, _ROWS))


def _put(stream, text):
    if stream is None:  # this process was started without it
        return
    # Whoever read along may have left; the job goes on, and so do its log files.
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()
