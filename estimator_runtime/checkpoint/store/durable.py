"""Durable files: they are on the disk when a function returns, not only in a cache.

A hidden file or folder is what a living process writes, or what a dead one has left.
Its writer locks it, and the boot of the machine in its name says whether that lock can
be seen from here.
"""

import contextlib
import errno
import fcntl
import functools
import os
import uuid

from estimator_runtime.checkpoint.tensor_bundle.regular_files import opener

_MARK = ".saving-"
# Errors of an fsync of a folder on some network and user-space file systems.
_NOT_FOR_FOLDERS = {errno.EINVAL, errno.EBADF, errno.ENOTSUP}


def sync_file(path: str) -> None:
    """Wait until the content of a file would survive a loss of power."""
    # Without O_NONBLOCK, a named pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Wait until the names in a folder would survive a loss of power.

    If the file system cannot sync folders, this does nothing.
    """
    try:
        sync_file(path or ".")
    except OSError as error:
        if error.errno not in _NOT_FOR_FOLDERS:
            raise


def replace_file(path: str, content: bytes) -> None:
    """Replace the content of a file, which need not exist, atomically and durably.

    Raises:
        OSError: If it cannot be written. The file is unchanged.
    """
    temporary = temporary_name(path)
    try:
        with open(temporary, "xb", opener=opener) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)  # while it is locked
    except OSError:
        remove_if_there(temporary)
        raise
    sync_folder(os.path.dirname(path))


def remove_if_there(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def temporary_name(path: str) -> str:
    """Return a new hidden path, at which to write what will become `path`."""
    folder, name = os.path.split(path)
    unique = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
    return os.path.join(folder, f".{name}{_MARK}{this_boot()}-{unique}")


def is_temporary_name(path: str) -> bool:
    """Return whether the name of a path is from `temporary_name`."""
    head, mark, _ = os.path.basename(path).rpartition(_MARK)
    return bool(mark) and head.startswith(".")


def final_path(path: str) -> str:
    """Return the path that a file or folder named by `temporary_name` finally gets."""
    folder, name = os.path.split(path)
    return os.path.join(folder, name.rpartition(_MARK)[0].removeprefix("."))


def is_of_this_boot(path: str) -> bool:
    """Return whether a process on this kernel has named a path, since it booted."""
    return os.path.basename(path).rpartition(_MARK)[2].startswith(f"{this_boot()}-")


@functools.cache
def this_boot() -> str:
    """Return what identifies this boot of this machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read(8)
    except OSError:
        # As no other process has it, none is taken for dead.
        return uuid.uuid4().hex[:8]
