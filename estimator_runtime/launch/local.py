"""The local back end: every task is a process of this machine."""

import os
import resource
import sys

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.console import Console
from estimator_runtime.launch.handle import SupervisedJob, check_environ, check_log_dir
from estimator_runtime.launch.memory import available_mb
from estimator_runtime.launch.presentation import Presentation
from estimator_runtime.launch.processes import Processes
from estimator_runtime.launch.screen import Screen
from estimator_runtime.launch.supervisor import Supervisor

# Two pipes, one for reports and the port that is held; and those of the launcher.
_FDS_PER_TASK = 4
_FDS_OF_LAUNCHER = 64
# What a task takes beside its model; a forked one shares what it has not changed.
_MB_PER_WARM_TASK, _MB_OF_WARM_PARENT = 80, 450
_MB_PER_COLD_TASK = 350


class LocalBackend:
    """Runs jobs as processes of this machine, on 127.0.0.1.

    Attributes:
        warm: Whether tasks are forked from one process that has imported TensorFlow;
            else each is a plain process that imports it.
        private_network: Whether the tasks get a network of their own, in which only
            they can reach each other.
        console: Where the lines of the tasks go.
    """

    def __init__(self, *, warm=True, private_network=False, console=None):
        self.warm, self.private_network = warm, private_network
        self.console = console or Console()

    def submit(self, job):
        """Start a job; see `Backend.submit`.

        Raises:
            ConfigError: If this is not Linux, TF_CONFIG is set here already, the log
                folder cannot be written, a variable has a value that cannot be used,
                or there are too few file descriptors or too little memory.
        """
        _check_platform()
        check_environ(os.environ)
        check_log_dir(job)
        presentation = Presentation.of(job, os.environ)
        _check_descriptors(len(job.tasks))
        _check_memory(len(job.tasks), self.warm)
        screen = Screen(self.console, presentation)
        network = self.private_network
        processes = Processes(job, self.warm, network, screen.write_of_parent)
        return SupervisedJob(Supervisor(job, processes, screen))


def _check_platform():
    if sys.platform != "linux":
        raise ConfigError(
            f"clusters of local processes need Linux, and this is {sys.platform}; "
            "start each task yourself, with a TF_CONFIG of its own"
        )


def _check_descriptors(tasks):
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = tasks * _FDS_PER_TASK + _FDS_OF_LAUNCHER
    if limit != resource.RLIM_INFINITY and needed > limit:
        most = max(0, (limit - _FDS_OF_LAUNCHER) // _FDS_PER_TASK)
        raise ConfigError(
            f"{tasks} tasks need {needed} file descriptors, and the limit is {limit}; "
            f"start at most {most} tasks, or raise it: ulimit -n {needed}"
        )


def _check_memory(tasks, warm):
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
