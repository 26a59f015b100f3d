"""Durable files: they are on the disk when a function returns, not only in a cache.

Hidden files and folders carry the identity of the process that has created them, so
that others can tell whether it is still running.
"""

import contextlib
import errno
import os
import socket
import uuid
from typing import NamedTuple

from estimator_runtime.checkpoint.tensor_bundle.regular_files import opener

_MARK = ".saving-"
# Errors of an fsync of a folder on some network and user-space file systems.
_NOT_FOR_FOLDERS = {errno.EINVAL, errno.EBADF, errno.ENOTSUP}
_identities: dict[int, "Identity"] = {}  # by process id: a forked child has its own


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


def replace_file(path: str, content: bytes, mtime_ns: int | None = None) -> None:
    """Replace the content of a file atomically and durably.

    Args:
        path: The file; it need not exist.
        content: The new content.
        mtime_ns: Modification time to set, in nanoseconds since 1970; None for now.

    Raises:
        OSError: If it cannot be written. The file is unchanged.
    """
    temporary = temporary_name(path)
    try:
        with open(temporary, "wb", opener=opener) as file:
            file.write(content)
            file.flush()
            if mtime_ns is not None:
                os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        remove_if_there(temporary)
        raise
    sync_folder(os.path.dirname(path))


def remove_if_there(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class Identity(NamedTuple):
    """Identifies a process, even among containers that share a host name.

    Attributes:
        boot: First digits of the kernel's boot id, which is new at each boot.
        namespace: Number of the namespace of process ids.
        started: When the process started, in clock ticks since the boot.
    """

    boot: str
    namespace: str
    started: str


class Owner(NamedTuple):
    """The process that has created a hidden file or folder.

    Attributes:
        pid: Process id, in its namespace.
        host: Name of its host.
        identity: None in a name that has none.
    """

    pid: int
    host: str
    identity: Identity | None


def temporary_name(path: str) -> str:
    """Return the hidden path at which this process writes what will become `path`."""
    folder, name = os.path.split(path)
    owner = f"{os.getpid()}-{socket.gethostname()}+{'.'.join(own_identity())}"
    return os.path.join(folder, f".{name}{_MARK}{owner}")


def owner(name: str) -> Owner | None:
    """Return the owner in a name from `temporary_name`, or None for other names."""
    head, mark, tail = name.rpartition(_MARK)
    pid, dash, rest = tail.partition("-")
    if not (mark and dash and head.startswith(".") and pid.isascii() and pid.isdigit()):
        return None
    host, plus, parts = rest.partition("+")
    identity = parts.split(".")
    if not plus or len(identity) != len(Identity._fields):
        return Owner(int(pid), rest, None)
    return Owner(int(pid), host, Identity(*identity))


def own_identity() -> Identity:
    """Return the identity of this process."""
    pid = os.getpid()
    if pid not in _identities:
        # If the real identity is unknown, this one equals no other.
        unknown = Identity("", "", uuid.uuid4().hex)
        _identities[pid] = identity_of(pid) or unknown
    return _identities[pid]


def identity_of(pid: int) -> Identity | None:
    """Return the identity of a process of our namespace; None if it does not run."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read(8)
        namespace = os.stat("/proc/self/ns/pid").st_ino
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        state, started = fields[0], fields[19]
    except (OSError, IndexError):
        return None
    return None if state in "ZX" else Identity(boot, str(namespace), started)


def final_path(path: str) -> str:
    """Return the path that a file or folder named by `temporary_name` finally gets."""
    folder, name = os.path.split(path)
    return os.path.join(folder, name.rpartition(_MARK)[0].removeprefix("."))
