"""Whether whoever has left something half done is still there to finish it."""

import os
import socket
import time

from estimator_runtime.checkpoint import durable

# What belongs to a process that cannot be asked (another host's, or TensorFlow's own)
# is dead when nothing in it has changed for so long.
_DEAD_AFTER_SECS = 600
# A file's time may be that of a server whose clock is so much behind.
_CLOCKS_DIFFER_SECS = 60


def is_dead(path, now=time.time):
    """Tell whether whoever writes to a path will not go on.

    Args:
        path: A file or folder, named by `durable.temporary_name` or by TensorFlow.
        now: Gives seconds since 1970.
    """
    changed = changed_at(path)
    if changed is None:  # finished meanwhile
        return False
    owner = durable.owner(os.path.basename(path))
    if owner is None or owner[1] != socket.gethostname():
        return now() - changed > _DEAD_AFTER_SECS
    pid = owner[0]
    # Ours is of an earlier life: this is called before anything is written.
    if pid == os.getpid() or not _is_alive(pid):
        return True
    # Not by the time alone: the disk of a process that lives may not answer.
    started = _started_at(pid)
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


def _started_at(pid):
    """Give when a process has started, in seconds since 1970; None if nobody says.

    A process id is used again: in a container that starts anew often the same one.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat") as file:
            booted = next(int(line.split()[1]) for line in file if line[:6] == "btime ")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return booted + ticks / os.sysconf("SC_CLK_TCK")
