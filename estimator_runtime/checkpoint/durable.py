"""Files that are on the disk, not only on their way to it, when a function returns."""

import contextlib
import errno
import os
import socket

_MARK = ".saving-"
# What some network and user-space file systems answer to the fsync of a folder.
_NOT_FOR_FOLDERS = {errno.EINVAL, errno.EBADF, errno.ENOTSUP}


def sync_file(path):
    """Wait until the content of a file would survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path):
    """Wait until the names in a folder would survive a loss of power.

    Where the file system cannot do that for folders, their names are left to it.
    """
    try:
        sync_file(path or ".")
    except OSError as error:
        if error.errno not in _NOT_FOR_FOLDERS:
            raise


def replace_file(path, content):
    """Give a file new content: at each instant it has all of the old or the new.

    Args:
        path: The file; it need not exist.
        content: Bytes.

    Raises:
        OSError: If it cannot be written; the file is as it was.
    """
    temporary = temporary_name(path)
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        remove_if_there(temporary)
        raise
    sync_folder(os.path.dirname(path))


def remove_if_there(path):
    """Remove a file; one that is not there is as good as removed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def temporary_name(path):
    """Name what will become `path`, hidden, after the process that makes it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{_MARK}{os.getpid()}-{socket.gethostname()}")


def owner(name):
    """Give (process id, host) of what `temporary_name` has named; else None."""
    head, mark, tail = name.rpartition(_MARK)
    pid, dash, host = tail.partition("-")
    if not (mark and dash and head.startswith(".") and pid.isdigit()):
        return None
    return int(pid), host


def final_name(name):
    """Give the name of what `temporary_name` has named, once it is complete."""
    return name.rpartition(_MARK)[0].removeprefix(".")
