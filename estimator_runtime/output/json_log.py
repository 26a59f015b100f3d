"""Log lines as JSON objects.

Standard library only, because both halves of the package import this module.
"""

import atexit
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

_LETTERS = {"I": "info", "W": "warning", "E": "error", "F": "error"}
_NAMES = {"critical": "error", "fatal": "error"}
# The formats of Python's logging, of glog and absl, and of TensorFlow's older C++ code.
_LEVEL = re.compile(
    r"(?:(?P<name>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):[\w.]*:"
    r"|(?P<letter>[IWEF])\d{4} \S+ +\d+ \S+:\d+\] "
    r"|\d{4}-\d\d-\d\d \S+: (?P<old>[IWEF]) )"
)


def level_of(line: str) -> str | None:
    """Return the level that a log line begins with, or None."""
    found = _LEVEL.match(line)
    if found is None:
        return None
    name = (found["name"] or "").lower()
    return _NAMES.get(name, name) or _LETTERS[found["letter"] or found["old"]]


def as_json(task: str, line: str, now: float, level: str = "info") -> str:
    """Return a line of a task as a JSON object without a line break.

    Args:
        task: The name of the task.
        line: The line.
        now: Seconds since 1970.
        level: The level, unless the line begins with one.
    """
    level = level_of(line) or level
    return json.dumps({"time": now, "task": task, "level": level, "message": line})


def start(task: str) -> None:
    """Write each line of `sys.stdout` and `sys.stderr` as a JSON object from here on.

    Args:
        task: The name of the task in these objects.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:  # the process was started without it
            setattr(sys, name, JsonStream(stream, task))


class JsonStream:
    """A text stream that writes each line to another stream as a JSON object.

    A line is written when it is complete, the last one at the exit of the process. What
    bypasses the stream, such as C++ code and child processes, stays text.

    Args:
        stream: The stream to write to.
        task: The name of the task.
        clock: Returns the seconds since 1970.
    """

    def __init__(
        self, stream: Any, task: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._stream, self._task, self._clock = stream, task, clock
        self._lock, self._rest = threading.RLock(), ""
        # The parent writes its incomplete line, and another thread may hold the lock.
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.end_line)

    def write(self, text: str) -> int:
        """Write the lines that `text` completes; return its number of characters."""
        with self._lock:
            *lines, self._rest = f"{self._rest}{text}".split("\n")
            for line in lines:
                self._stream.write(f"{as_json(self._task, line, self._clock())}\n")
            if lines:
                self._stream.flush()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, which include their line breaks."""
        self.write("".join(lines))

    def end_line(self) -> None:
        """Write the incomplete line, if there is one."""
        if self._rest:
            self.write("\n")

    def isatty(self) -> bool:
        """Return False: nothing can be drawn here."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _reset(self) -> None:
        self._lock, self._rest = threading.RLock(), ""
