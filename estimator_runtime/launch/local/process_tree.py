"""What the tasks have started, wherever it has gone: found by marks in the environment.

A process that begins a session of its own, or outlives who started it, is in no group
and under no parent that would tell whose it is. But it has inherited the variables.
"""

import contextlib
import ctypes
import os
import signal
from typing import NamedTuple

# The same in all processes that one parent and its tasks have started.
FAMILY_VARIABLE = "ESTIMATOR_RUNTIME_FAMILY"
# The number of the run that has started a process, among those of its parent.
RUN_VARIABLE = "ESTIMATOR_RUNTIME_RUN"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class ProcessStat(NamedTuple):
    """What the kernel says of a process.

    Attributes:
        parent: The pid of its parent.
        cpu_secs: The CPU time that all of its threads have used, without its children.
    """

    parent: int
    cpu_secs: float


def stat_of(pid: int) -> ProcessStat | None:
    """Return what the kernel says of a process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # Its name, in brackets, may have anything in it.
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessStat(int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))


def adopt_orphans():
    """Be the parent of every descendant from now on whose own parent has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_death_signal(number):
    """Let the kernel send this process a signal when its parent ends; 0 for none."""
    _prctl(_PR_SET_PDEATHSIG, number)


def kill_orphans(tasks):
    """Kill those adopted children that runs which have ended left behind.

    Their own children are adopted then: it is to be called again when they have ended.

    Args:
        tasks: Number of each run that goes on to its pid.
    """
    live = set(map(str, tasks))
    for pid in set(_children()) - set(tasks.values()):
        run = _mark_of(pid, RUN_VARIABLE)
        # Whose it is cannot be told of one that a warm task has only forked.
        if run not in live and not (run is None and live):
            _kill(pid)


def kill_children():
    """Kill the children of this process, and those it adopts, until none is left."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                _kill(pid)
            os.waitpid(-1, 0)


def kill_family(family):
    """Kill all processes of a parent, itself or its tasks, that are left."""
    for pid in _processes():
        if pid != os.getpid() and _mark_of(pid, FAMILY_VARIABLE) == family:
            _kill(pid)


def _children():
    stats = {pid: stat_of(pid) for pid in _processes()}
    return [pid for pid, stat in stats.items() if stat and stat.parent == os.getpid()]


def _mark_of(pid, variable):
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


def _kill(pid):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _prctl(option, value):
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
