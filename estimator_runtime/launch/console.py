"""Writes the lines of all tasks to one terminal, each with the name of its task."""

import contextlib
import shutil
import sys

from estimator_runtime.launch.stream_writer import StreamWriter, without_waiting

# Of the terminal's own palette, so that they can be read on any background.
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94)
_OURS = "launcher"
_CLEAR = "\r\x1b[K"
# For who reads the last lines.
_FLUSH_SECS = 5.0


class Console:
    """Two streams that the tasks and the launcher write to.

    Nobody waits for those who read them: see `stream_writer`.

    Attributes:
        width: Characters of the prefix, before the bar.
    """

    def __init__(self, stdout=None, stderr=None):
        """Write to the streams of this process, or to those given."""
        self._stdout, self._stderr = without_waiting(
            stdout or sys.stdout, stderr or sys.stderr
        )
        # Asked now: later, whoever reads along may have closed them.
        self._has_colours = {s: s.isatty() for s in (self._stdout, self._stderr)}
        self._colours: dict[str, int] = {}
        self._status = ""
        self.width = len(_OURS)

    def introduce(self, names):
        """Let the prefixes have the width of the longest of these names."""
        self.width = max(map(len, (_OURS, *names)))
        self._colours = {
            name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)
        }

    def write(self, name, line, is_error=True):
        """Write one line of the task of this name."""
        stream = self._stderr if is_error else self._stdout
        prefix = f"{name:<{self.width}} | "
        if self._has_colours[stream] and name in self._colours:
            prefix = f"\x1b[{self._colours[name]}m{prefix}\x1b[0m"
        if self._status:
            _put(self._stderr, _CLEAR)
        _put(stream, f"{prefix}{line}\n")
        if self._status:
            _put(self._stderr, self._status)

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

    def status(self, line):
        """Keep one line below the others, on a terminal; elsewhere write nothing.

        Args:
            line: The text; "" for none, None for the one that is there.
        """
        if line is None or not self._has_colours[self._stderr]:
            return
        # One that is wrapped could not be taken away again.
        shown = line[: shutil.get_terminal_size().columns - 1]
        _put(self._stderr, f"{_CLEAR}{shown}")
        self._status = shown


def _put(stream, text):
    # Whoever read along may have left; the job goes on, and so do its log files.
    with contextlib.suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()
