"""The process tree of each task, found by marks in the environment of processes.

A process may begin a session of its own, or outlive the process that started it. Then
neither its process group nor its parent shows which task it belongs to. But it has
inherited the environment variables of the task.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

# The same in all processes that one fork server and its tasks have started.
FAMILY_VARIABLE = "ESTIMATOR_RUNTIME_FAMILY"
# The number of the run that has started a process, among the runs of a fork server.
RUN_VARIABLE = "ESTIMATOR_RUNTIME_RUN"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class ProcessStat(NamedTuple):
    """What the kernel reports about a process.

    Attributes:
        parent: The pid of its parent.
        cpu_secs: The CPU time that all its threads have used, without its children.
    """

    parent: int
    cpu_secs: float


def stat_of(pid: int) -> ProcessStat | None:
    """Return what the kernel reports about a process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The name of the process, in parentheses, may contain any character.
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessStat(int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))


def start_ticks_of(pid: int) -> int | None:
    """Return when a process has started, in clock ticks since the boot.

    Together with its pid this identifies a process. The result is None if the process
    is gone, and on systems without /proc.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def adopt_orphans() -> None:
    """Make this process adopt its orphaned descendants from now on."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_death_signal(number: int) -> None:
    """Make the kernel send this process a signal when its parent ends; 0 for none."""
    _prctl(_PR_SET_PDEATHSIG, number)


def signal_group(pid: int, number: int) -> None:
    """Signal a process group, unless it is gone or may not be signalled."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_orphans(tasks: Mapping[int, int]) -> None:
    """Kill the adopted children that belong to runs which have ended.

    This process then adopts their own children. So call this function again once the
    killed processes have ended. `tasks` has the pid of each run that goes on.
    """
    live = set(map(str, tasks))
    for pid in set(_children()) - set(tasks.values()):
        run = _mark_of(pid, RUN_VARIABLE)
        # A process has no mark if a warm task has forked it and it has executed no
        # program. Such a process is killed only when no run is left.
        if run not in live and not (run is None and live):
            _kill(pid)


def kill_children() -> None:
    """Kill all children of this process, including those that it adopts meanwhile."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                _kill(pid)
            os.waitpid(-1, 0)


def kill_family(family: str) -> None:
    """Kill all processes whose `FAMILY_VARIABLE` has this value."""
    for pid in _processes():
        if pid != os.getpid() and _mark_of(pid, FAMILY_VARIABLE) == family:
            _kill(pid)


def _children() -> list[int]:
    stats = {pid: stat_of(pid) for pid in _processes()}
    return [pid for pid, stat in stats.items() if stat and stat.parent == os.getpid()]


def _mark_of(pid: int, variable: str) -> str | None:
    """Return a variable that a process or its last program began with, or None."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            entries = environ.read().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return None
    name = f"{variable}=".encode()
    values = [each for each in entries if each.startswith(name)]
    return values[0][len(name) :].decode(errors="replace") if values else None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
