"""The processes that a task has started, found by their parents.

A process may begin a session of its own, or outlive the process that started it, so its
process group does not say which task it belongs to. But each task adopts its orphaned
descendants. So they all stay below the task until it ends, and are then children of the
fork server, which knows its tasks: all its other children belong to runs that have
ended.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection
from typing import NamedTuple

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


def adopt_orphans() -> None:
    """Make this process adopt its orphaned descendants from now on.

    A program that it executes does so too, but not a process that it forks.
    """
    call_libc("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with(parent: int | None) -> None:
    """Make the kernel kill this process when its parent ends.

    Args:
        parent: The pid of the parent; None undoes that.
    """
    number = 0 if parent is None else int(signal.SIGKILL)
    call_libc("prctl", _PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent not in (None, os.getppid()):  # it ended before that
        os.kill(os.getpid(), signal.SIGKILL)


def signal_group(pid: int, number: int) -> None:
    """Signal a process group, unless it is gone or may not be signalled."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_children(spared: Collection[int] = ()) -> None:
    """Kill the children of this process, except for some pids.

    This process then adopts their own children. So call this function again once the
    killed processes have ended.
    """
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        stat = stat_of(pid)
        if pid not in spared and stat is not None and stat.parent == os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def kill_descendants() -> None:
    """Kill all children of this process, including those that it adopts meanwhile."""
    with contextlib.suppress(ChildProcessError):
        while True:
            kill_children()
            os.waitpid(-1, 0)


def call_libc(name: str, *arguments: int) -> None:
    """Call a function of the C library; raise an OSError if it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
