"""The log file of a task, and the excerpt of it that explains a failure.

The folder for logs is often not known before the tasks have reported their model
directory. Until then the lines go to a file in a temporary folder.
"""

import collections
import contextlib
import errno
import io
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence

from estimator_runtime.checkpoint.tensor_bundle.regular_files import opener
from estimator_runtime.launch.task import Task

_CHUNK = 1 << 20
# The tail of all lines, and the part of each, that is kept in memory.
_TAIL_LINES, _TAIL_CHARS = 300, 4096
# A file with this many bytes is renamed, and a new one begun: its share of this part of
# what is free on its disk, on which checkpoints may need room too, between two limits.
_PART_OF_FREE, _LEAST_BYTES, _MOST_BYTES = 50, 64 << 10, 64 << 20
_EARLIER = ".1"  # ends the name of the renamed file
_EXCERPT_LINES = 20
# Seconds between two checks that the file still exists.
_CHECK_SECS = 1.0
_TRACEBACK = "Traceback (most recent call last):"
_OUR_ERROR = "estimator-runtime: error: "
# Begins the line that stands before the lines of each run.
START_MARK = "estimator-runtime: "
# Lines that TensorFlow, absl, gRPC and this package write in any run. They are never
# the reason of a failure.
_NOISE = re.compile(
    r"\s*$|(INFO|WARNING|DEBUG):tensorflow[.\w]*:|[IW]\d{4} |\d{4}-\d\d-\d\d .*: [IW] "
    r"|estimator-runtime: \S+( \d+)? started.*, pid \d+$"
    r"|To enable the following instructions|WARNING: All log messages before absl"
)


class TaskLog:
    """The log of one task, with the lines of all its runs.

    If the file cannot be written any more, for example on a full disk, the user is told
    once. The last lines are still kept in memory, and the job goes on. If the file is
    removed, for example by a script that clears its model directory, it is created
    again with those last lines. If it gets too long, it is renamed, in place of the one
    that was renamed before.

    Attributes:
        task: The task.
        path: Path of the file, or None.
        problem: Why the file has been given up, or None.
        is_whole: Whether the file has all lines.
        say: Called with each line that is for the user.
        shared_by: How many logs there are in the job, this one included.
        spool: Returns the folder for lines that are written before `open` is called;
            if it is None, only the last of those lines are kept.
    """

    def __init__(
        self,
        task: Task,
        say: Callable[[str], None] = lambda line: None,
        spool: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        free_bytes: Callable[[str], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self.task, self.say, self.spool, self.shared_by = task, say, spool, 1
        self._free_bytes, self._most_bytes = free_bytes, _MOST_BYTES
        self._clock, self._checked_at = clock, clock()
        self._is_spooled = self._is_gone = self._is_stale = False
        self.path: str | None = None
        self.problem: str | None = None
        self.is_whole = True
        self._file: io.FileIO | None = None
        # The last lines of the current run, and those that have been written to the
        # file, maybe by another thread.
        self._tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        self._written: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)

    def write(self, line: str) -> None:
        """Append a line."""
        self.keep(line)
        self.write_file(line)

    def keep(self, line: str) -> None:
        """Keep a line for `excerpt`, without touching the file."""
        self._tail.append(line[:_TAIL_CHARS])

    def write_file(self, line: str) -> None:
        """Append a line to the file, which may take long."""
        if self._clock() - self._checked_at >= _CHECK_SECS:
            self._restore_if_removed(is_hurried=False)
        self._written.append(line[:_TAIL_CHARS])
        try:
            if self._file is None and self.problem is None and self.spool is not None:
                self._file, self.path = self._open_file(self.spool())
                self._is_spooled = True
            self._write_line(line)
        except (OSError, ValueError) as error:  # ValueError: the file is closed
            number = getattr(error, "errno", None)
            self._is_stale = self._file is not None and number == errno.ESTALE
            if not self._is_stale:
                self._stop(error)

    def restore(self) -> None:
        """Create the file again, with the last lines, if it has been removed."""
        self._restore_if_removed(is_hurried=True)

    def _restore_if_removed(self, is_hurried: bool) -> None:
        """Create the file again if it has been removed.

        Unless `is_hurried`, that happens only when two checks in a row have found the
        file missing. A program that is just removing the folder would fail otherwise,
        because the folder would not be empty.
        """
        self._checked_at = self._clock()
        if self._file is None or self.path is None:
            return
        was_gone = self._is_gone
        self._is_gone = self._is_removed(self._file, self.path)
        if self._is_gone and (was_gone or is_hurried):
            self._create_again(self._file, self.path)

    def _is_removed(self, file: io.FileIO, path: str) -> bool:
        if not self._is_stale:
            try:
                has_name = os.fstat(file.fileno()).st_nlink > 0
            except OSError as error:
                self._is_stale = error.errno == errno.ESTALE
            else:
                # Some file systems in user space report a link count of 0 for any file.
                return not has_name and not os.path.exists(path)
        return self._is_stale  # on NFS, another machine has removed the file

    def _create_again(self, file: io.FileIO, path: str) -> None:
        if self.is_whole:
            self.is_whole = False
            self.say(
                f"the log of {self.task}, {path}, was removed: it is created again, "
                "with the last lines only"
            )
        try:
            with contextlib.suppress(OSError):
                file.close()
            self._is_gone = self._is_stale = False
            self._file, self.path = self._open_file(os.path.dirname(path))
            for line in self._written:
                self._write_line(line)
        except OSError as error:
            self._stop(error)

    def open(self, folder: str) -> None:
        """Write to a file in a folder from now on, beginning with the earlier lines.

        The folder is created if it does not exist. The log stays where it is if it has
        been opened before, or if the earlier lines cannot be copied to the folder.

        Raises:
            OSError: If the file cannot be created.
        """
        if self.path is not None and not self._is_spooled:
            return
        self.restore()
        opened, path = self._open_file(folder)
        if self.path is not None:
            try:
                # The lines are copied, and the file is not moved: an earlier job may
                # have written to the new file, and the temporary folder is usually on
                # another file system.
                with open(self.path, "rb") as spooled:
                    spooled.seek(max(0, os.path.getsize(self.path) - self._most_bytes))
                    while data := spooled.read(_CHUNK):
                        _write(opened, data)
            except OSError as error:
                opened.close()
                self._is_spooled = False
                self.say(
                    f"the log of {self.task} stays at {self.path}: it cannot be "
                    f"copied to {path}: {error.strerror}"
                )
                return
            self.close()
            with contextlib.suppress(OSError):
                os.remove(self.path)
        self._file, self.path, self._is_spooled = opened, path, False

    def close(self) -> None:
        """Close the file."""
        opened, self._file = self._file, None
        try:
            if opened is not None:
                opened.close()
        except OSError as error:  # network file systems may report a full disk here
            self._stop(error)

    def start_run(self) -> None:
        """Start a new run: `excerpt` then covers no lines of earlier runs."""
        self._tail.clear()

    def excerpt(self) -> tuple[str, ...]:
        """Return the last lines that say why the task failed."""
        return excerpt(list(self._tail))

    def _open_file(self, folder: str) -> tuple[io.FileIO, str]:
        """Open the file in a folder for appending, and return it with its path."""
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, self.task.file_name)
        part = self._free_bytes(folder) // _PART_OF_FREE // self.shared_by
        self._most_bytes = min(max(part, _LEAST_BYTES), _MOST_BYTES)
        # Unbuffered: users read the log while it is written, and bytes in a buffer
        # would fail a second time when the file is closed.
        return open(path, "ab", buffering=0, opener=opener), path

    def _write_line(self, line: str) -> None:
        """Append a line to the file, if there is one, or to a new one after it."""
        if self._file is None or self.path is None:
            return
        if self._file.tell() >= self._most_bytes:
            earlier = f"{self.path}{_EARLIER}"
            if self.is_whole:
                self.is_whole = False
                self.say(
                    f"the log of {self.task}, {self.path}, has reached "
                    f"{self._most_bytes >> 10} KiB: its lines are in {earlier} now, "
                    "until the next ones replace them there"
                )
            with contextlib.suppress(FileNotFoundError):  # it has been removed
                os.replace(self.path, earlier)
            # If the new file cannot be opened, the old one is still there to be closed.
            opened, path = self._open_file(os.path.dirname(self.path))
            self._file.close()
            self._file, self.path = opened, path
        _write(self._file, line.encode(errors="replace") + b"\n")

    def _stop(self, error: OSError | ValueError) -> None:
        """Stop writing to the file, and tell the user once."""
        if self.problem is None:
            self.problem = getattr(error, "strerror", None) or str(error)
            self.is_whole = False
            where = f", {self.path}," if self.path else ""
            self.say(
                f"the log of {self.task}{where} stops here: {self.problem}; the job "
                "goes on"
            )
        self.close()


def _write(file: io.FileIO, data: bytes) -> None:
    """Write all bytes: one call may write only some of them when a disk gets full."""
    while data:
        data = data[file.write(data) :]


def excerpt(lines: Sequence[str]) -> tuple[str, ...]:
    """Return those of the last lines of a program that say why it failed.

    That is the last Python traceback, shortened in its middle; or the one line of an
    error that this package reported; or the last lines that are not routine output of
    TensorFlow.
    """
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(_OUR_ERROR):
            return (lines[index],)
        if lines[index] == _TRACEBACK:
            return _shorten(_traceback(lines[index:]))
    telling = [line for line in lines if not _NOISE.match(line)]
    return tuple(telling[-5:])


def _traceback(lines: Sequence[str]) -> Sequence[str]:
    """Return the traceback that the lines begin with, and its message.

    Routine output may stand between the lines of a traceback, because Python writes
    them one by one. After the message, it is where the message ends.
    """
    found, has_message = list(lines[:1]), False
    for line in lines[1:]:
        if not _NOISE.match(line):
            found.append(line)
            has_message = has_message or not line.startswith("  ")
        elif has_message:
            break
    return found


def _shorten(lines: Sequence[str]) -> tuple[str, ...]:
    if len(lines) <= _EXCERPT_LINES:
        return tuple(lines)
    head, tail = 5, _EXCERPT_LINES - 6
    left_out = len(lines) - head - tail
    return (*lines[:head], f"  ... {left_out} lines ...", *lines[-tail:])
