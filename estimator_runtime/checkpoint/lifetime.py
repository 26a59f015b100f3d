"""Decides whether the process that left unfinished files is still alive.

A process locks the hidden folder that it writes to, and the kernel lets go of the lock
when it dies. So processes of other containers can be asked too, whatever they call
themselves.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable

from estimator_runtime.checkpoint import durable

# What belongs to a process that cannot be asked (another host's, or TensorFlow's own)
# is dead when nothing in it has changed for so long.
_DEAD_AFTER_SECS = 600
# A file's time may be that of a server whose clock is so much behind.
_CLOCKS_DIFFER_SECS = 60


_LOCK_ATTEMPTS, _LOCK_PAUSE_SECS = 100, 0.01  # whoever looks holds it for an instant
_held: dict[str, int] = {}  # path of a folder that this process has locked: descriptor


def hold(folder: str) -> None:
    """Lock a new hidden folder, until `let_go` or the end of this process.

    Where the file system has no locks, others judge by the time of the last change.

    Raises:
        OSError: If there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    _held[os.path.realpath(folder)] = descriptor
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECS)
        except OSError:  # a file system without locks
            return


def let_go(folder: str) -> None:
    """Unlock a folder, if this process has locked it."""
    descriptor = _held.pop(os.path.realpath(folder), None)
    if descriptor is not None:
        os.close(descriptor)


def _forget_held() -> None:
    """Close the locked folders in a forked child, which would keep them locked."""
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_held)


def _booted_at() -> float | None:
    """Return when this machine booted, in seconds since 1970; None if unknown."""
    try:
        with open("/proc/stat") as file:
            return next(float(line.split()[1]) for line in file if line[:6] == "btime ")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def is_dead(
    path: str,
    now: Callable[[], float] = time.time,
    booted_at: Callable[[], float | None] = _booted_at,
) -> bool:
    """Return whether whoever writes to a path will not go on.

    Args:
        path: A file or folder, named by `durable.temporary_name` or by TensorFlow.
        now: Gives seconds since 1970.
        booted_at: Returns when this machine booted, in seconds since 1970, or None.
    """
    changed = changed_at(path)
    if changed is None:  # finished meanwhile
        return False
    is_quiet = now() - changed > _DEAD_AFTER_SECS
    owner = durable.owner(os.path.basename(path))
    if owner is None:
        return is_quiet
    is_here = owner.host == socket.gethostname()
    if owner.identity is None:
        return _is_pid_dead(owner.pid, changed) if is_here else is_quiet
    me = durable.own_identity()
    if owner.identity == me:
        # Otherwise it is left from a failed write of this process.
        return os.path.realpath(path) not in _held
    if me.boot and owner.identity[:2] == me[:2]:
        return durable.identity_of(owner.pid) != owner.identity
    is_locked = _is_locked(path)
    if is_locked is None:
        return is_quiet
    # Locks may be seen on one machine only, and another may have the same host name.
    is_known = bool(me.boot) and owner.identity.boot == me.boot
    if is_here and not is_known:
        is_known = _is_before(changed, booted_at())
    try:  # It is locked before anything is written to it.
        is_known = is_known and bool(os.listdir(path))
    except FileNotFoundError:  # finished meanwhile
        return False
    return not is_locked and (is_known or is_quiet)


def _is_locked(path: str) -> bool | None:
    """Return whether a folder is locked; None for a file, or where nobody knows."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_pid_dead(pid: int, changed: float) -> bool:
    """Return whether a process of an earlier release, of this host, is dead."""
    # Ours is of an earlier life: this is called before anything is written.
    if pid == os.getpid() or not _is_alive(pid):
        return True
    # Not by the time alone: the disk of a process that lives may not answer.
    return _is_before(changed, _started_at(pid))


def _is_before(changed: float, started: float | None) -> bool:
    return started is not None and started - changed > _CLOCKS_DIFFER_SECS


def changed_at(path):
    """Give the time of the last change of a file, or of a folder or a file in it.

    Returns:
        Seconds since 1970, or None if it is not there or nobody may look.
    """
    try:
        times = [os.path.getmtime(path)]
        inside = os.listdir(path) if os.path.isdir(path) else []
    except OSError:
        return None
    for name in inside:
        try:
            times.append(os.path.getmtime(os.path.join(path, name)))
        except OSError:  # it has got its name, or is deleted
            continue
    return max(times)


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _started_at(pid: int) -> float | None:
    """Give when a process has started, in seconds since 1970; None if nobody says.

    A process id is used again: in a container that starts anew often the same one.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    booted = _booted_at()
    return None if booted is None else booted + ticks / os.sysconf("SC_CLK_TCK")
