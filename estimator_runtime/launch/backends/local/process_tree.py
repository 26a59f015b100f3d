"""The process tree of each task, found by marks in the environment of processes.

A process may begin a session of its own, or outlive the process that started it. Then
neither its process group nor its parent shows which task it belongs to. But it has
inherited the environment variables of the task.
"""

import contextlib
import ctypes
import itertools
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

# The same in all processes that one fork server and its tasks have started.
FAMILY_VARIABLE = "ESTIMATOR_RUNTIME_FAMILY"
# The number of the run that has started a process, among the runs of a fork server.
RUN_VARIABLE = "ESTIMATOR_RUNTIME_RUN"
_NO_RUN = "-" * 10
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


def marks_of(family: str) -> dict[str, str]:
    """Return the variables that the environment of a fork server must begin with."""
    return {FAMILY_VARIABLE: family, RUN_VARIABLE: _NO_RUN}


def mark_run(number: int) -> None:
    """Mark this process, which a fork server has forked, as the one of a run.

    The kernel shows the variables with which a process has executed its program. It
    shows them from the memory of the process, so they can be written there. Processes
    that this one forks have the mark too, even if they execute no program.
    """
    variables = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    begin = f"{RUN_VARIABLE}=".encode()
    entries = itertools.takewhile(bool, (variables[i] for i in itertools.count()))
    for entry in entries:
        if ctypes.string_at(entry) == begin + _NO_RUN.encode():
            text = begin + str(number).zfill(len(_NO_RUN)).encode()
            ctypes.memmove(entry, text, len(text))


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
    for pid in set(_children()) - set(tasks.values()):
        run = _mark_of(pid, RUN_VARIABLE) or ""
        # A process without a mark has emptied its environment. It is killed only when
        # no run is left.
        if int(run) not in tasks if run.isdigit() else not tasks:
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
