"""What the tasks have started, wherever it has gone: found by marks in the environment.

A process that begins a session of its own, or outlives who started it, is in no group
and under no parent that would tell whose it is. But it has inherited the variables.
"""

import contextlib
import ctypes
import os
import signal

# The same in all processes that one parent and its tasks have started.
FAMILY_VARIABLE = "ESTIMATOR_RUNTIME_FAMILY"
# The number of the run that has started a process, among those of its parent.
RUN_VARIABLE = "ESTIMATOR_RUNTIME_RUN"
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Be the parent of every descendant from now on whose own parent has ended."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children():
    """Give the pids of the children of this process, the adopted ones among them."""
    return [pid for pid in _processes() if _parent_of(pid) == os.getpid()]


def mark_of(pid, variable):
    """Give a variable that a process was started with; None if it has none.

    One that was forked, and has executed no program, has those of who was forked.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            entries = environ.read().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return None
    name = f"{variable}=".encode()
    values = [each for each in entries if each.startswith(name)]
    return values[0][len(name) :].decode(errors="replace") if values else None


def kill_family(family):
    """Kill all processes of a parent, itself or its tasks, that are left."""
    for pid in _processes():
        if pid != os.getpid() and mark_of(pid, FAMILY_VARIABLE) == family:
            kill(pid)


def kill(pid):
    """Kill a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # Its name, in brackets, may have anything in it.
            return int(stat.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None
