"""The local back end, which checks that this machine can run a job and starts it."""

import os
import resource
import sys

from estimator_runtime.config.memory import available_mb
from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.backend import SupervisedJob, check_launch
from estimator_runtime.launch.backends.local import gpus
from estimator_runtime.launch.backends.local.processes import Processes
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.screen import DisplaySettings, Screen

# A task needs two pipes for its output, one for its reports, and a reserved port.
_FDS_PER_TASK = 4
_FDS_OF_LAUNCHER = 64
# The memory of a task without its model. A forked task shares what it has not changed.
_MB_PER_WARM_TASK, _MB_OF_WARM_PARENT = 80, 450
_MB_PER_COLD_TASK = 350


class LocalBackend:
    """Runs jobs as processes of this machine, on 127.0.0.1.

    Attributes:
        warm: Whether tasks are forked from one process that has imported TensorFlow. If
            not, each is a new process that imports it.
        private_network: Whether the tasks get a network of their own, in which only
            they can reach each other.
        gpus_per_worker: The GPUs of the chief and of each worker. A part lets several
            share one, and 0 keeps all tasks on the CPU. None gives each one in turn,
            and all to a single trainer.
        console: Where the output lines of the tasks go.
    """

    def __init__(
        self,
        *,
        warm: bool = True,
        private_network: bool = False,
        gpus_per_worker: float | None = None,
        console: Console | None = None,
    ) -> None:
        self.warm, self.private_network = warm, private_network
        self.gpus_per_worker = gpus_per_worker
        self.console = console or Console()

    def submit(self, job: Job) -> SupervisedJob:
        """Start a job; see `Backend.submit`.

        Raises:
            ConfigError: If this is not Linux, TF_CONFIG is set in this process, the log
                folder cannot be written, a variable has an invalid value, or there are
                too few file descriptors or GPUs or too little memory.
        """
        _check_platform()
        check_launch(job, os.environ)
        settings = DisplaySettings.of(job, os.environ)
        _check_descriptors(len(job.tasks))
        _check_memory(len(job.tasks), self.warm)
        screen = Screen(self.console, settings)
        environs = gpus.environ_of_tasks(
            job, self.gpus_per_worker, os.environ, self.console.say
        )
        processes = Processes(
            job,
            self.warm,
            self.private_network,
            screen.write_of_fork_server,
            environs,
        )
        return SupervisedJob(job, processes, screen, "local")


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
