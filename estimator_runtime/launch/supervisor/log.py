"""The log files of a job, and the lines that explain a failure.

The folder for logs is often not known before the tasks have reported their model
directory. Until then the lines are kept in memory.
"""

from __future__ import annotations

import collections
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from estimator_runtime.checkpoint.tensor_bundle.regular_files import opener
from estimator_runtime.launch.supervisor.file_worker import FileWorker
from estimator_runtime.launch.task import Task

# How much of a line is kept in memory.
_TAIL_CHARS = 4096
# How many of the last lines of a task explain its failure.
_TAIL_LINES = 20
# A file with this many bytes is renamed, and a new one begun: its disk, on which
# checkpoints may need room too, has no more than twice as many of each task.
_MOST_BYTES = 64 << 20
_EARLIER = ".1"  # ends the name of the renamed file
# Characters that wait to be written: from _MANY on they no longer wait for the model
# directory to be known, and from _MAX_WAITING on there is no room for more. A line
# takes more than its characters.
_MANY, _MAX_WAITING, _PER_LINE = 1 << 20, 8 << 20, 100
# How long the end of a job waits for the last lines to be written.
_FLUSH_SECS = 15.0
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

    The file is opened for each write, so one that a program has removed is created
    again. If it gets too long, it is renamed, in place of the one that was renamed
    before.

    Args:
        task: The task.
        say: Receives each line that is for the user.
        most_bytes: The length at which the file is renamed.

    Attributes:
        path: Path of the file, or None while it has none.
    """

    def __init__(
        self, task: Task, say: Callable[[str], None], most_bytes: int = _MOST_BYTES
    ) -> None:
        self._task, self._say, self._most_bytes = task, say, most_bytes
        self.path: str | None = None
        self._lacks_lines = False
        self._tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        self._explanation = tuple[str, ...]()

    def keep(self, line: str) -> None:
        """Keep a line for `excerpt`, without touching the file."""
        if line.strip() and not _NOISE.match(line):
            self._tail.append(line[:_TAIL_CHARS])

    def explain(self, text: str) -> None:
        """Keep what the task itself reports of the error that ends it."""
        self._explanation = tuple(text.splitlines())

    def start_run(self) -> None:
        """Start a new run: `excerpt` then covers no lines of earlier runs."""
        self._tail.clear()
        self._explanation = ()

    def excerpt(self) -> tuple[str, ...]:
        """Return the lines that say why the task failed.

        They are what the task has reported, which nothing that it prints can hide. A
        program that handles its error itself reports none: then they are its last
        lines, without routine output of TensorFlow.
        """
        return self._explanation or tuple(self._tail)

    def leave_out(self, why: str) -> None:
        """Tell the user, once, that the file lacks lines."""
        if not self._lacks_lines:
            self._lacks_lines = True
            self._say(
                f"the log of {self._task}, {self.path}, lacks lines: {why}; the job "
                "goes on"
            )

    # These methods write files, and run on the thread for that.

    def open(self, folder: str) -> None:
        """Write to a file in this folder, which exists, from now on.

        Raises:
            OSError: If the file cannot be created.
        """
        path = os.path.join(folder, self._task.file_name)
        open(path, "ab", opener=opener).close()
        self.path = path

    def append(self, lines: Sequence[str]) -> None:
        """Append lines to the file; if that fails, they are missing there."""
        if self.path is None:
            return
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.path, "ab", opener=opener) as file:
                for line in lines:
                    file.write(line.encode(errors="replace") + b"\n")
                is_full = file.tell() >= self._most_bytes
            if is_full:
                os.replace(self.path, f"{self.path}{_EARLIER}")
        except OSError as error:
            self.leave_out(str(error.strerror))


class Logs:
    """The logs of all tasks of a job, which a thread writes.

    Args:
        tasks: The tasks.
        say: Receives each line that is for the user.
        folder: The folder for the files, or None if it is not known yet.
        most_bytes: The length at which a file is renamed.

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
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._say = say
        self.of = {task: TaskLog(task, say, most_bytes) for task in tasks}
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
        if size >= _MANY:
            self.open(None)
            self.worker.put("lines", self._drain)

    def check(self, now: float) -> None:
        """Write the lines that wait, and name a disk that hangs; call this repeatedly.

        Lines are not written one by one, because a program that is removing its folder
        would fail if a file appeared there meanwhile.
        """
        if self._waiting and self._is_open:
            self.worker.put("lines", self._drain)
        self.worker.check(now)

    def flush(self) -> None:
        """Wait for all lines, for a while; without a folder, use a temporary one."""
        if self._waiting:
            self.open(None)
        until = time.monotonic() + _FLUSH_SECS

        def goes_on() -> bool:
            return not self.worker.is_named and time.monotonic() < until

        self.worker.put("lines", self._drain)
        self.worker.wait("lines", goes_on)

    def _open(self, folder: str | None) -> None:
        try:
            if folder is None:
                folder = self.spool = tempfile.mkdtemp(prefix="estimator-runtime-logs-")
            os.makedirs(folder, exist_ok=True)
            for log in self.of.values():
                log.open(folder)
        except OSError as error:
            self.problem = (
                f"log folder {folder!r} cannot be written: {error.strerror}; give "
                "another one with --log-dir"
            )
            return
        self._say(f"the log of each task is in {folder}")
        self._drain()

    def _drain(self) -> None:
        lines: dict[Task, list[str]] = {}
        taken = 0
        while self._waiting:
            task, line = self._waiting.popleft()
            lines.setdefault(task, []).append(line)
            taken += len(line) + _PER_LINE
        for task, new in lines.items():
            self.of[task].append(new)
        self._taken += taken
