"""The processes that a task has started, found by their parents.

A process may begin a session of its own, or outlive the process that started it, so its
process group does not say which task it belongs to. But the keeper of a task adopts
all its orphaned descendants.
"""

import contextlib
import ctypes
import os
import signal
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


def end_with(parent: int | None, number: int = signal.SIGKILL) -> None:
    """Make the kernel send this process a signal when its parent ends.

    Args:
        parent: The pid of the parent; None undoes that.
        number: The signal.
    """
    call_libc("prctl", _PR_SET_PDEATHSIG, 0 if parent is None else number, 0, 0, 0)
    if parent not in (None, os.getppid()):  # it ended before that
        os.kill(os.getpid(), number)


def signal_group(pid: int, number: int) -> None:
    """Signal a process group, unless it is gone or may not be signalled."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def kill_descendants() -> None:
    """Kill all children of this process, including those that it adopts meanwhile."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                stat = stat_of(pid)
                if stat is not None and stat.parent == os.getpid():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def call_libc(name: str, *arguments: int) -> None:
    """Call a function of the C library; raise an OSError if it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
