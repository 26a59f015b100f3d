"""The local back end, which checks that this machine can run a job and starts it."""

import dataclasses
import os

from estimator_runtime.launch.backend import SupervisedJob, check_launch
from estimator_runtime.launch.backends.local import gpus
from estimator_runtime.launch.backends.local.processes import Processes
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.screen import DisplaySettings, Screen


@dataclasses.dataclass(frozen=True, kw_only=True)
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

    warm: bool = True
    private_network: bool = False
    gpus_per_worker: float | None = None
    console: Console = dataclasses.field(default_factory=Console)

    def submit(self, job: Job) -> SupervisedJob:
        """Start a job; see `Backend.submit`.

        Raises:
            ConfigError: If TF_CONFIG is set in this process, a variable has an invalid
                value, or there are too few GPUs.
        """
        check_launch(os.environ)
        screen = Screen(self.console, DisplaySettings.of(job, os.environ))
        say = self.console.say
        environs = gpus.environ_of_tasks(job, self.gpus_per_worker, os.environ, say)
        processes = Processes(job, self.warm, self.private_network, say, environs)
        return SupervisedJob(job, processes, screen, "local")
