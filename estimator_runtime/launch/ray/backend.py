"""The Ray back end: every task is a process on a node of a Ray cluster.

Ray places the tasks, and carries their lines and reports; what is started, when, and
how the job ends is for the same supervisor that local jobs have.
"""

import dataclasses
import os

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.console import Console
from estimator_runtime.launch.handle import SupervisedJob, check_environ, check_log_dir
from estimator_runtime.launch.presentation import Presentation
from estimator_runtime.launch.screen import Screen
from estimator_runtime.launch.supervisor import Supervisor
from estimator_runtime.reporting import FD_VARIABLE, JOB_VARIABLE
from estimator_runtime.waits import STOP_GRACE_VARIABLE

_STRATEGIES = ("spread", "pack")
_PLACEMENT_SECS = 300.0
# What of this environment the tasks get: our options and TensorFlow's.
_PREFIXES = ("ESTIMATOR_RUNTIME_", "TF_")
# The grace is in the job already.
_OF_ONE_PROCESS = (FD_VARIABLE, JOB_VARIABLE, "TF_CONFIG", STOP_GRACE_VARIABLE)


class RayBackend:
    """Runs jobs in a Ray cluster; this machine has to be a node of it.

    Attributes:
        address: "host:port" of the cluster's head; "auto" for RAY_ADDRESS, or the
            cluster of this machine.
        placement: "spread" over many nodes, or "pack" on few.
        working_dir: A folder that is copied to the nodes, and in which the tasks run;
            None runs them in the present folder, which all nodes must have.
        placement_timeout_secs: How long the job may wait for room; None is for five
            minutes, but only where the cluster can ever have so much.
        console: Where the lines of the tasks go.
    """

    def __init__(
        self,
        *,
        address="auto",
        placement="spread",
        working_dir=None,
        placement_timeout_secs=None,
        console=None,
    ):
        """Check the options.

        Raises:
            ConfigError: If Ray is not installed, or an option cannot be used.
        """
        # Ray tells of lost nodes with long excerpts of its logs; we say it in a line.
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
        try:
            import ray  # noqa: F401 - needed by the modules that `submit` imports
        except ImportError as error:
            raise ConfigError(
                f"the Ray back end needs Ray, which cannot be imported ({error}); "
                "install it with: pip install 'estimator-runtime[ray]'"
            ) from error
        if placement not in _STRATEGIES:
            raise ConfigError(
                f"placement is {placement!r}; use {' or '.join(_STRATEGIES)}"
            )
        if working_dir is not None and not os.path.isdir(working_dir):
            raise ConfigError(
                f"working directory {working_dir!r} is no folder; give the one that "
                "has the script"
            )
        self.address, self.placement, self.working_dir = address, placement, working_dir
        self.placement_timeout_secs = placement_timeout_secs
        self.console = console or Console()

    def submit(self, job):
        """Reserve room in the cluster and start a job there; see `Backend.submit`.

        Raises:
            ConfigError: If TF_CONFIG is set here already, the log folder cannot be
                written, a variable has a value that cannot be used, no cluster
                answers, or neither Ray nor the cluster can ever give what the job
                takes.
            LaunchError: If there is no room in time, or a node differs from this
                machine.
        """
        from estimator_runtime.launch import ray_cluster
        from estimator_runtime.launch.ray_placement import Placement
        from estimator_runtime.launch.ray_tasks import RayTasks

        check_environ(os.environ)
        check_log_dir(job)
        _check_gpus(job)
        screen = Screen(self.console, Presentation.of(job, os.environ))
        folder = os.getcwd() if self.working_dir is None else None
        ray_cluster.connect(self.address, self.working_dir)
        placement = Placement(job, self.placement, self.console)
        try:
            never = placement.why_never()
            if never is not None and self.placement_timeout_secs is None:
                raise ConfigError(
                    f"the cluster can never run this job: {never}; start fewer tasks, "
                    "or, where nodes are about to join, set a --placement-timeout"
                )
            timeout_secs = self.placement_timeout_secs or _PLACEMENT_SECS
            placement.reserve(timeout_secs)
            nodes = placement.nodes()
            ray_cluster.check_nodes(nodes, folder)
            env = {**_shared_variables(os.environ), **job.env}
            job = dataclasses.replace(job, env=env)
            tasks = RayTasks(job, placement, nodes, folder, timeout_secs, self.console)
            return SupervisedJob(Supervisor(job, tasks, screen))
        except BaseException:
            placement.release()
            ray_cluster.disconnect()
            raise


def _check_gpus(job):
    for task in job.tasks:
        gpus = job.resources_of(task).gpus
        if gpus > 1 and gpus != int(gpus):
            raise ConfigError(
                f"a task takes {gpus:g} GPU, and Ray gives parts of one, or whole ones "
                "only; give a whole number with --gpus-per-worker, or less than 1"
            )


def _shared_variables(environ):
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(_PREFIXES) and name not in _OF_ONE_PROCESS
    }
