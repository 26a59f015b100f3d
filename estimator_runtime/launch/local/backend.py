"""The local back end, which checks that this machine can run a job and starts it."""

import contextlib
import os
import pathlib
import resource
import sys

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.backend import JobHandle, check_launch
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.local.processes import Processes
from estimator_runtime.launch.supervisor.job_file import JobFile
from estimator_runtime.launch.supervisor.supervisor import Supervisor
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.views import Presentation, Screen

# A task needs two pipes for its output, one for its reports, and a reserved port.
_FDS_PER_TASK = 4
_FDS_OF_LAUNCHER = 64
# The memory of a task without its model. A forked task shares what it has not changed.
_MB_PER_WARM_TASK, _MB_OF_WARM_PARENT = 80, 450
_MB_PER_COLD_TASK = 350
_MB = 1 << 20
# For each version of control groups: the folder with the groups, the files with the
# limit and the usage of a group, and the entries of memory.stat that the kernel can
# reclaim when memory runs short.
_V2 = (".", "memory.max", "memory.current", ("active_file", "inactive_file"))
_V1 = (
    "memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)


class LocalBackend:
    """Runs jobs as processes of this machine, on 127.0.0.1.

    Attributes:
        warm: Whether tasks are forked from one process that has imported TensorFlow. If
            not, each is a new process that imports it.
        private_network: Whether the tasks get a network of their own, in which only
            they can reach each other.
        console: Where the output lines of the tasks go.
    """

    def __init__(
        self,
        *,
        warm: bool = True,
        private_network: bool = False,
        console: Console | None = None,
    ) -> None:
        self.warm, self.private_network = warm, private_network
        self.console = console or Console()

    def submit(self, job: Job) -> JobHandle:
        """Start a job; see `Backend.submit`.

        Raises:
            ConfigError: If this is not Linux, TF_CONFIG is set in this process, the log
                folder cannot be written, a variable has an invalid value, or there are
                too few file descriptors or too little memory.
        """
        _check_platform()
        check_launch(job, os.environ)
        presentation = Presentation.of(job, os.environ)
        _check_descriptors(len(job.tasks))
        _check_memory(len(job.tasks), self.warm)
        screen = Screen(self.console, presentation)
        processes = Processes(
            job, self.warm, self.private_network, screen.write_of_fork_server
        )
        job_file = JobFile(job, "local")
        return JobHandle(Supervisor(job, processes, screen, job_file=job_file))


def _check_platform() -> None:
    """Raise `ConfigError` if this is not Linux."""
    if sys.platform != "linux":
        raise ConfigError(
            f"clusters of local processes need Linux, and this is {sys.platform}; "
            "start each task yourself, with a TF_CONFIG of its own"
        )


def _check_descriptors(tasks: int) -> None:
    """Raise `ConfigError` if there are too few file descriptors for so many tasks."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = tasks * _FDS_PER_TASK + _FDS_OF_LAUNCHER
    if limit != resource.RLIM_INFINITY and needed > limit:
        most = max(0, (limit - _FDS_OF_LAUNCHER) // _FDS_PER_TASK)
        raise ConfigError(
            f"{tasks} tasks need {needed} file descriptors, and the limit is {limit}; "
            f"start at most {most} tasks, or raise it: ulimit -n {needed}"
        )


def _check_memory(tasks: int, warm: bool) -> None:
    """Raise `ConfigError` if there is too little memory for so many tasks."""
    available = available_mb()
    if warm:
        needed = tasks * _MB_PER_WARM_TASK + _MB_OF_WARM_PARENT
    else:
        needed = tasks * _MB_PER_COLD_TASK
    if available is not None and needed > available:
        raise ConfigError(
            f"{tasks} tasks need about {needed} MB of memory at the least, and "
            f"{available} MB are free on this machine, or in the control group of this "
            "process; start fewer tasks" + ("" if warm else ", or leave out --cold")
        )


def available_mb(
    proc: str | os.PathLike[str] = "/proc",
    groups: str | os.PathLike[str] = "/sys/fs/cgroup",
) -> int | None:
    """Return the free memory in MB, or None if it is unknown.

    This is the least of what the machine has left and what each control group of this
    process has left. A group may be that of a container, a pod, a batch job or a
    service. The page cache counts as free.

    Args:
        proc: The mount point of procfs.
        groups: The mount point of the control groups.
    """
    free = [
        int(text.split()[0]) * 1024
        for name, text in _entries(pathlib.Path(proc, "meminfo")).items()
        if name == "MemAvailable:"
    ]
    for line in _lines(pathlib.Path(proc, "self", "cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, limit, usage, reclaimable = _V1 if controllers else _V2
        root = pathlib.Path(groups, folder)
        group = root / path.lstrip("/")
        # In a container the outer groups are not visible, and the container's own group
        # may be at the root.
        for each in (group, *group.parents):
            if each.is_relative_to(root):
                free += _free_bytes(each, limit, usage, reclaimable)
    return max(0, min(free)) // _MB if free else None


def _free_bytes(
    group: pathlib.Path, limit: str, usage: str, reclaimable: tuple[str, ...]
) -> list[int]:
    """Return the free bytes of a control group; nothing if it has no limit."""
    try:
        free = int((group / limit).read_text()) - int((group / usage).read_text())
    except (OSError, ValueError):  # there is no such group, or its limit is "max"
        return []
    stat = _entries(group / "memory.stat")
    return [free + sum(int(stat.get(name, 0)) for name in reclaimable)]


def _entries(path: pathlib.Path) -> dict[str, str]:
    """Return the rest of each line of a file by its first word."""
    return dict(line.split(maxsplit=1) for line in _lines(path))


def _lines(path: pathlib.Path) -> list[str]:
    """Return the lines of a file, or no lines if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []
