"""Reads files of checkpoints, and keeps a failed read apart from a damaged file.

A disk or file server that answers with an error says nothing about the file: the next
read may succeed. So each read is tried several times. Only a file that is not in the
listing of its folder is missing.
"""

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import TypeVar

from estimator_runtime.checkpoint.table import TableError
from estimator_runtime.errors import CheckpointError

_T = TypeVar("_T")
_ABSENT = (FileNotFoundError, NotADirectoryError)
# Before the second, third and fourth attempt. Mounts that come back, and descriptors
# that other threads give back, take about so long.
_PAUSES_SECS = (0.05, 0.2, 0.5)
_pause = time.sleep
_REMEDIES = {
    errno.EACCES: "grant this process read permission",
    errno.EPERM: "grant this process read permission",
    errno.EMFILE: "allow this process more open files (ulimit -n)",
    errno.ENFILE: "allow this machine more open files (sysctl fs.file-max)",
    errno.ENOMEM: "give this process more memory",
}


class UnreadableError(CheckpointError, OSError):
    """A file of a checkpoint cannot be read now; it may be good all the same.

    Attributes:
        reason: Which file, and why, in a few words.
    """

    def __init__(self, error: OSError):
        """Describe the last error of several attempts.

        Args:
            error: It names the file.
        """
        name = os.path.basename(error.filename or "a file")
        self.reason = f"{name} cannot be read: {error.strerror or error}"
        remedy = _REMEDIES.get(
            error.errno or 0, "check that its disk or file server is responding"
        )
        super().__init__(
            f"{error.filename!r} cannot be read: {error.strerror or error}. The "
            "checkpoint may be good, so it stays where it is and no older one is used: "
            f"{remedy}, then start again"
        )


def content(path: str) -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: If it is missing.
        TableError: If there is something else of that name, such as a folder.
        OSError: If it cannot be read, after several attempts.
    """

    def read() -> bytes:
        with os.fdopen(_open(path), "rb") as file:
            return file.read()

    return _retried(path, read)


def part(path: str, offset: int, size: int) -> bytes:
    """Return bytes of a file, fewer than `size` only where it ends; see `content`."""

    def read() -> bytes:
        with os.fdopen(_open(path), "rb", buffering=0) as file:
            file.seek(offset)
            parts = []
            left = size
            while left and (data := file.read(left)):
                parts.append(data)
                left -= len(data)
            return b"".join(parts)

    return _retried(path, read)


def size(path: str) -> int:
    """Return the size of a file that can be opened, in bytes; see `content`."""

    def read() -> int:
        descriptor = _open(path)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    return _retried(path, read)


def names(folder: str) -> list[str]:
    """Return the names in a folder; there are none where there is no such folder.

    Raises:
        OSError: If it cannot be listed, after several attempts.
    """
    try:
        return _retried(folder, lambda: os.listdir(folder or "."))
    except _ABSENT:
        return []


def _open(path: str) -> int:
    # Without O_NONBLOCK, a named pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    if not is_file:
        os.close(descriptor)
        raise TableError("is no regular file")
    return descriptor


def _retried(path: str, read: Callable[[], _T]) -> _T:
    pauses = iter(_PAUSES_SECS)
    while True:
        try:
            return read()
        except OSError as error:
            if _is_missing(path, error):
                raise
            error.filename = error.filename or path
            secs = next(pauses, None)
            if secs is None:
                if isinstance(error, _ABSENT):
                    os.listdir(os.path.dirname(path) or ".")  # or raise why not
                raise
        _pause(secs)


def _is_missing(path: str, error: OSError) -> bool:
    """Return whether an error, and the listing of the folder, say that it is missing.

    A file server may say so for a moment of a file that it lists.
    """
    if not isinstance(error, _ABSENT):
        return False
    folder, name = os.path.split(path)
    try:
        return name not in os.listdir(folder or ".")
    except _ABSENT:
        return True
    except OSError:
        return False
