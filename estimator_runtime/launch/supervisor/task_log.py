"""The whole log of each task, in a file of its own, and what of it says why it failed.

The folder is often known only when the tasks have said what their model directory is:
until then the lines are in a temporary one.
"""

import collections
import contextlib
import errno
import io
import os
import re
import time

_CHUNK = 1 << 20
_TAIL_LINES = 300
_EXCERPT_LINES = 20
# Between two looks at whether a file is still there.
_LOOK_SECS = 1.0
_TRACEBACK = "Traceback (most recent call last):"
_OUR_ERROR = "estimator-runtime: error: "
# What TensorFlow, absl, gRPC and we say on the way: never the reason of a failure.
_NOISE = re.compile(
    r"\s*$|(INFO|WARNING|DEBUG):tensorflow[.\w]*:|[IW]\d{4} |\d{4}-\d\d-\d\d .*: [IW] "
    r"|To enable the following instructions|WARNING: All log messages before absl"
)


class TaskLog:
    """What one task has written, in all its runs.

    A file that cannot be written any more, as on a full disk, is said once; the last
    lines are known all the same, and the job goes on. One that somebody removes, as a
    script may that clears its model directory, is made again, with those lines.

    Attributes:
        task: The task.
        path: Where the file is, or None.
        problem: Why it has been given up, or None.
        is_whole: Whether the file has all lines.
        say: Called with a line for the user.
        spool: Gives the folder for lines that come before one is opened; None
            keeps only the last of them.
    """

    def __init__(self, task, say=lambda line: None, spool=None, clock=time.monotonic):
        """Know the task."""
        self.task, self.say, self.spool = task, say, spool
        self._clock, self._looked_at = clock, clock()
        self._is_spooled = self._is_gone = self._is_stale = False
        self.path: str | None = None
        self.problem: str | None = None
        self.is_whole = True
        self._file: io.FileIO | None = None
        self._tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)

    def write(self, line):
        """Add a line."""
        if self._clock() - self._looked_at >= _LOOK_SECS:
            self._look(is_hurried=False)
        self._tail.append(line)
        try:
            if self._file is None and self.problem is None and self.spool is not None:
                self._file, self.path = self._made(self.spool())
                self._is_spooled = True
            if self._file is not None:
                _write_line(self._file, line)
        except OSError as error:
            self._is_stale = self._file is not None and error.errno == errno.ESTALE
            if not self._is_stale:
                self._stop(error)

    def restore(self):
        """Make the file again, with the last lines, if somebody has removed it."""
        self._look(is_hurried=True)

    def _look(self, is_hurried):
        """Make it again, if not in a hurry once it has been gone for a while.

        Whoever clears its folder just now would find it not empty, and fail.
        """
        self._looked_at = self._clock()
        if self._file is None or self.path is None:
            return
        was_gone = self._is_gone
        self._is_gone = self._is_removed(self._file, self.path)
        if self._is_gone and (was_gone or is_hurried):
            self._make_again(self._file, self.path)

    def _is_removed(self, file, path):
        if not self._is_stale:
            try:
                has_name = os.fstat(file.fileno()).st_nlink > 0
            except OSError as error:
                self._is_stale = error.errno == errno.ESTALE
            else:
                # Some file systems in user space count no names of any file.
                return not has_name and not os.path.exists(path)
        return self._is_stale  # as another machine has removed it, on NFS

    def _make_again(self, file, path):
        if self.is_whole:
            self.is_whole = False
            self.say(
                f"the log of {self.task}, {path}, was removed: it is made again, "
                "with the last lines only"
            )
        try:
            with contextlib.suppress(OSError):
                file.close()
            self._is_gone = self._is_stale = False
            self._file, self.path = self._made(os.path.dirname(path))
            for line in self._tail:
                _write_line(self._file, line)
        except OSError as error:
            self._stop(error)

    def open(self, folder):
        """Write to a file in `folder` from now on, first the lines that there are.

        It stays where it is if it has been opened before, or there is no room for them.

        Raises:
            OSError: If it cannot be made.
        """
        if self.path is not None and not self._is_spooled:
            return
        self.restore()
        opened, path = self._made(folder)
        if self.path is not None:
            try:
                # Not moved: earlier jobs may have written there, and the temporary
                # folder is mostly of another file system.
                with open(self.path, "rb") as spooled:
                    while data := spooled.read(_CHUNK):
                        _write(opened, data)
            except OSError as error:
                opened.close()
                self._is_spooled = False
                self.say(
                    f"the log of {self.task} stays at {self.path}: {path} cannot have "
                    f"it: {error.strerror}"
                )
                return
            self.close()
            with contextlib.suppress(OSError):
                os.remove(self.path)
        self._file, self.path, self._is_spooled = opened, path, False

    def close(self):
        """Close the file."""
        opened, self._file = self._file, None
        try:
            if opened is not None:
                opened.close()
        except OSError as error:  # as network file systems tell of a full disk
            self._stop(error)

    def start_run(self):
        """Let the excerpt be of the run that starts now."""
        self._tail.clear()

    def excerpt(self):
        """Give the last lines that say why the task failed."""
        return excerpt(list(self._tail))

    def _made(self, folder):
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, self.task.file_name)
        # Lines of a log are read while it is written. Nothing is held back that would
        # fail to be written once more when the file is closed.
        return open(path, "ab", buffering=0), path

    def _stop(self, error):
        if self.problem is None:
            self.problem = error.strerror or str(error)
            self.is_whole = False
            where = f", {self.path}," if self.path else ""
            self.say(
                f"the log of {self.task}{where} stops here: {self.problem}; the job "
                "goes on"
            )
        self.close()


def _write_line(file, line):
    _write(file, line.encode(errors="replace") + b"\n")


def _write(file, data):
    """Write all of it: a disk that gets full may take a part."""
    while data:
        data = data[file.write(data) :]


def excerpt(lines):
    """Give the lines that say why a program failed.

    Args:
        lines: The last lines that it wrote.

    Returns:
        The last Python traceback, shortened in its middle; an error that this package
        reported in one line; or the last lines that are not TensorFlow's chatter.
    """
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(_OUR_ERROR):
            return (lines[index],)
        if lines[index] == _TRACEBACK:
            return _shorten(_traceback(lines[index:]))
    telling = [line for line in lines if not _NOISE.match(line)]
    return tuple(telling[-5:])


def _traceback(lines):
    """Cut a traceback off after its last line: the error, which may have several."""
    end = 1
    while end < len(lines) and (lines[end].startswith("  ") or not lines[end].strip()):
        end += 1
    while end < len(lines) and not _NOISE.match(lines[end]):
        end += 1
    return lines[:end]


def _shorten(lines):
    if len(lines) <= _EXCERPT_LINES:
        return tuple(lines)
    head, tail = 5, _EXCERPT_LINES - 6
    left_out = len(lines) - head - tail
    return (*lines[:head], f"  ... {left_out} lines ...", *lines[-tail:])
