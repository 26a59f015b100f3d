"""The log files of a job, and the excerpt of a log that explains a failure.

The folder for logs is often not known before the tasks have reported their model
directory. Until then the lines are kept in memory.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from estimator_runtime.checkpoint.tensor_bundle.regular_files import opener
from estimator_runtime.launch.supervisor.file_worker import FileWorker
from estimator_runtime.launch.task import Task

# The tail of all lines, and the part of each, that is kept in memory.
_TAIL_LINES, _TAIL_CHARS = 300, 4096
# A file with this many bytes is renamed, and a new one begun: its share of this part of
# what is free on its disk, on which checkpoints may need room too, between two limits.
_PART_OF_FREE, _LEAST_BYTES, _MOST_BYTES = 50, 64 << 10, 64 << 20
_EARLIER = ".1"  # ends the name of the renamed file
# A program that is removing its folder would fail if a log appeared there meanwhile.
_REMOVED_SECS = 1.0
# Characters that wait to be written: from _MANY on they no longer wait for the model
# directory to be known, and from _MAX_WAITING on there is no room for more. A line
# takes more than its characters.
_MANY, _MAX_WAITING, _PER_LINE = 1 << 20, 8 << 20, 100
# How long the end of a job waits for the last lines to be written.
_FLUSH_SECS = 15.0
_EXCERPT_LINES = 20
_TRACEBACK = "Traceback (most recent call last):"
_OUR_ERROR = "estimator-runtime: error: "
# Begins the line that stands before the lines of each run.
START_MARK = "estimator-runtime: "
# Lines that TensorFlow, absl, gRPC and this package write in any run. They are never
# the reason of a failure.
_NOISE = re.compile(
    r"(INFO|WARNING|DEBUG):tensorflow[.\w]*:|[IW]\d{4} |\d{4}-\d\d-\d\d .*: [IW] "
    r"|estimator-runtime: \S+( \d+)? started.*, pid \d+$"
    r"|To enable the following instructions|WARNING: All log messages before absl"
)


class TaskLog:
    """The log of one task: its last lines in memory, and all lines in a file.

    The file is opened for each write. If it has been removed, for example by a script
    that clears its model directory, it is created again with the last lines. If it gets
    too long, it is renamed, in place of the one that was renamed before.

    Args:
        task: The task.
        say: Receives each line that is for the user.
        clock: Returns the time in seconds.

    Attributes:
        path: Path of the file, or None while it has none.
        is_whole: Whether the file has all lines.
    """

    def __init__(
        self,
        task: Task,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._task, self._say, self._clock = task, say, clock
        self.path: str | None = None
        self.is_whole = True
        self._most_bytes, self._told = _MOST_BYTES, False
        self._missing_since: float | None = None
        # The last lines of the current run, and those that have been written to the
        # file, by another thread.
        self._tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        self._written: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)

    def keep(self, line: str) -> None:
        """Keep a line for `excerpt`, without touching the file."""
        self._tail.append(line[:_TAIL_CHARS])

    def start_run(self) -> None:
        """Start a new run: `excerpt` then covers no lines of earlier runs."""
        self._tail.clear()

    def excerpt(self) -> tuple[str, ...]:
        """Return the last lines that say why the task failed."""
        return excerpt(list(self._tail))

    def leave_out(self, why: str) -> None:
        """Tell the user, once, that the file lacks lines."""
        self.is_whole = False
        if not self._told:
            self._told = True
            self._say(
                f"the log of {self._task}, {self.path}, lacks lines: {why}; the job "
                "goes on"
            )

    # These methods write files, and run on the thread for that.

    def open(self, folder: str, most_bytes: int) -> None:
        """Write to a file in this folder, which exists, from now on.

        Raises:
            OSError: If the file cannot be created.
        """
        path = os.path.join(folder, self._task.file_name)
        open(path, "ab", opener=opener).close()
        self.path, self._most_bytes = path, most_bytes

    def append(self, lines: Sequence[str], is_end: bool = False) -> None:
        """Append lines to the file.

        If the file has been removed, it is created again after a second, with the last
        lines; at the end of the job it is at once. If it cannot be written, the user is
        told once, and the lines are missing there.
        """
        self._written.extend(line[:_TAIL_CHARS] for line in lines)
        if self.path is None:
            return
        try:
            if os.path.exists(self.path):
                self._missing_since = None
            elif self._is_removed(is_end):
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                lines = list(self._written)
            else:
                return
            self._write(self.path, lines)
        except OSError as error:
            self.leave_out(str(error.strerror))

    def _is_removed(self, is_end: bool) -> bool:
        """Return whether the file was removed long enough ago to be created again."""
        now = self._clock()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < _REMOVED_SECS and not is_end:
            return False
        if self.is_whole:
            self.is_whole = False
            self._say(
                f"the log of {self._task}, {self.path}, was removed: it is created "
                "again, with the last lines only"
            )
        return True

    def _write(self, path: str, lines: Iterable[str]) -> None:
        rest = collections.deque(lines)
        while rest:
            with open(path, "ab", opener=opener) as file:
                while rest and file.tell() < self._most_bytes:
                    line = rest.popleft()
                    file.write(line.encode(errors="replace") + b"\n")
            if rest:
                self._rename(path)

    def _rename(self, path: str) -> None:
        os.replace(path, f"{path}{_EARLIER}")
        if self.is_whole:
            self.is_whole = False
            self._say(
                f"the log of {self._task}, {path}, has reached "
                f"{self._most_bytes >> 10} KiB: its lines are in {path}{_EARLIER} now, "
                "until the next ones replace them there"
            )


class Logs:
    """The logs of all tasks of a job, which a thread writes.

    Args:
        tasks: The tasks.
        say: Receives each line that is for the user.
        folder: The folder for the files, or None if it is not known yet.
        free_bytes: Returns the free space of the disk of a folder.

    Attributes:
        of: The log of each task.
        worker: The thread that writes.
        spool: The temporary folder that the files are in, or None.
        problem: Why the folder cannot be used, or None.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        say: Callable[[str], None] = lambda line: None,
        folder: str | None = None,
        free_bytes: Callable[[str], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self._say, self._free_bytes = say, free_bytes
        self.of = {task: TaskLog(task, say) for task in tasks}
        self.worker = FileWorker("the logs", say)
        self.spool: str | None = None
        self.problem: str | None = None
        self._is_open, self._opening = False, threading.Lock()
        # The lines that wait; the thread takes all of them at once.
        self._waiting: collections.deque[tuple[Task, str]] = collections.deque()
        self._added = self._taken = 0  # in characters
        if folder is not None:
            self.open(folder)

    def open(self, folder: str | None) -> None:
        """Write the logs to files in a folder, which is created if need be.

        None stands for a temporary folder. Only the first call has an effect.
        """
        with self._opening:
            if not self._is_open:
                self.worker.put("folder", lambda: self._open(folder))
                self._is_open = True
        self.worker.wait("folder")

    def write(self, task: Task, line: str) -> None:
        """Append a line to a log; its file lacks it if too much is waiting."""
        log = self.of[task]
        log.keep(line)
        size = self._added - self._taken
        if size >= _MAX_WAITING:
            log.leave_out("its disk is too slow")
            return
        self._waiting.append((task, line))
        self._added += len(line) + _PER_LINE
        if self._is_open:
            self.worker.put("lines", self._drain)
        elif size >= _MANY:
            self.open(None)

    def flush(self) -> None:
        """Wait for all lines, for a while; without a folder, use a temporary one."""
        if self._waiting:
            self.open(None)
        until = time.monotonic() + _FLUSH_SECS

        def goes_on() -> bool:
            return not self.worker.is_named and time.monotonic() < until

        self.worker.put("lines", self._finish)
        if not self.worker.wait("lines", goes_on):
            for log in self.of.values():
                log.is_whole = False

    def _open(self, folder: str | None) -> None:
        try:
            if folder is None:
                folder = self.spool = tempfile.mkdtemp(prefix="estimator-runtime-logs-")
            os.makedirs(folder, exist_ok=True)
            share = self._free_bytes(folder) // _PART_OF_FREE // len(self.of)
            for log in self.of.values():
                log.open(folder, min(max(share, _LEAST_BYTES), _MOST_BYTES))
        except OSError as error:
            self.problem = (
                f"log folder {folder!r} cannot be written: {error.strerror}; give "
                "another one with --log-dir"
            )
            return
        self._say(f"the log of each task is in {folder}")
        self._drain()

    def _drain(self, is_end: bool = False) -> None:
        lines: dict[Task, list[str]] = {task: [] for task in self.of} if is_end else {}
        taken = 0
        while self._waiting:
            task, line = self._waiting.popleft()
            lines.setdefault(task, []).append(line)
            taken += len(line) + _PER_LINE
        for task, new in lines.items():
            self.of[task].append(new, is_end)
        self._taken += taken

    def _finish(self) -> None:
        self._drain(is_end=True)


def excerpt(lines: Sequence[str]) -> tuple[str, ...]:
    """Return those of the last lines of a program that say why it failed.

    That is the last Python traceback with its whole message, shortened in its middle;
    or the error that this package reported; or the last lines that are not routine
    output of TensorFlow.
    """
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(_OUR_ERROR):
            return _shorten(_message(lines[index:], has_begun=True))
        if lines[index] == _TRACEBACK:
            return _shorten(_message(lines[index:]))
    telling = [line for line in lines if line.strip() and not _NOISE.match(line)]
    return tuple(telling[-5:])


def _message(lines: Sequence[str], has_begun: bool = False) -> Sequence[str]:
    """Return the error that the lines begin with, to the end of its message.

    Routine output may stand between the lines of a traceback, because Python writes
    them one by one. After the message, it is where the message ends. A message may have
    blank lines.
    """
    found = list(lines[:1])
    for line in lines[1:]:
        if not _NOISE.match(line):
            if line.strip() or has_begun:
                found.append(line)
            has_begun = has_begun or (bool(line) and not line.startswith("  "))
        elif has_begun:
            break
    while not found[-1].strip():
        found.pop()
    return found


def _shorten(lines: Sequence[str]) -> tuple[str, ...]:
    if len(lines) <= _EXCERPT_LINES:
        return tuple(lines)
    head, tail = 5, _EXCERPT_LINES - 6
    left_out = len(lines) - head - tail
    return (*lines[:head], f"  ... {left_out} lines ...", *lines[-tail:])
