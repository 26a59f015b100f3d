"""Reads files of checkpoints, and distinguishes a failed read from a damaged file.

If a disk or file server returns an error, the file may still be good, and the next read
may succeed. So each read is attempted several times. A file is missing only if the
listing of its folder does not have it.
"""

import os
import time
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from estimator_runtime.checkpoint.tensor_bundle.regular_files import (
    NotRegularError,
    opener,
)
from estimator_runtime.checkpoint.tensor_bundle.table import TableError
from estimator_runtime.errors import CheckpointError

_T = TypeVar("_T")
_ABSENT = (FileNotFoundError, NotADirectoryError)
_MOST_BYTES = 16 << 20  # more than a state file of ten thousand checkpoints has
# Before the second, third and fourth attempt. It takes about this long until a lost
# mount is back, or other threads have closed some of their files.
_PAUSES_SECS = (0.05, 0.2, 0.5)


class UnreadableError(CheckpointError, OSError):
    """A file of a checkpoint cannot be read now, but may still be good.

    Attributes:
        reason: Which file cannot be read, and why, in a few words.
    """

    def __init__(self, error: OSError) -> None:
        """Create the error that describes the last of several attempts.

        Args:
            error: The error of that attempt, which names the file.
        """
        name = os.path.basename(error.filename or "a file")
        self.reason = f"{name} cannot be read: {error.strerror or error}"
        super().__init__(
            f"{error.filename!r} cannot be read: {error.strerror or error}. The "
            "checkpoint may be good, so it stays where it is and no older one is used: "
            "check its permissions, its disk or file server, and the limits of this "
            "process (ulimit -a), then start again"
        )


def content(path: str, most_bytes: int = _MOST_BYTES) -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: If it is missing.
        TableError: If the path is not a regular file, but, for example, a folder, or if
            the file has more than `most_bytes`.
        OSError: If it cannot be read, after several attempts.
    """

    def read(file: BinaryIO) -> bytes:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise TableError(f"has {size} bytes, which is too many")
        return file.read()

    return _read(path, read)


def part(path: str, offset: int, size: int) -> bytes:
    """Return a part of a file.

    Args:
        path: The file.
        offset: Where the part begins, in bytes.
        size: How many bytes to read. Fewer are returned only at the end of the file.

    Raises:
        FileNotFoundError, TableError, OSError: As in `content`.
    """

    def read(file: BinaryIO) -> bytes:
        file.seek(offset)
        return file.read(size)

    return _read(path, read)


def size(path: str) -> int:
    """Return the size of a file in bytes, after opening it.

    Raises:
        FileNotFoundError, TableError, OSError: As in `content`.
    """
    return _read(path, lambda file: os.fstat(file.fileno()).st_size)


def names(folder: str) -> list[str]:
    """Return the names in a folder; an empty list if the folder does not exist.

    Raises:
        OSError: If it cannot be listed, after several attempts.
    """
    try:
        return _retried(folder, lambda: os.listdir(folder or "."))
    except _ABSENT:
        return []


def _read(path: str, read: Callable[[BinaryIO], _T]) -> _T:
    def attempt() -> _T:
        try:
            descriptor = opener(path, os.O_RDONLY)
        except NotRegularError as error:
            raise TableError("is not a regular file") from error
        try:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return read(file)
        finally:
            os.close(descriptor)

    return _retried(path, attempt)


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
                    # If the folder cannot be listed either, raise that error.
                    os.listdir(os.path.dirname(path) or ".")
                raise
        time.sleep(secs)


def _is_missing(path: str, error: OSError) -> bool:
    """Return whether both an error and the listing of the folder show a missing file.

    A file server may report a file as missing for a moment, although it lists it.
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
