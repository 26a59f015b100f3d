"""The Ray back end: every task is a process on a node of a Ray cluster.

Ray places the tasks, and transports their output lines and reports. The same supervisor
as for local jobs decides what is started, when, and how the job ends.
"""

import dataclasses
import os
from collections.abc import Mapping

from estimator_runtime.config.waits import STOP_GRACE_VARIABLE
from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.backend import SupervisedJob, check_launch
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.screen import DisplaySettings, Screen
from estimator_runtime.reporting import JOB_VARIABLE
from estimator_runtime.reporting import VARIABLE as REPORTS_VARIABLE

_PLACEMENT_SECS = 300.0
# The variables of this process that the tasks receive: our options and TensorFlow's.
_PREFIXES = ("ESTIMATOR_RUNTIME_", "TF_")
# Except these, which belong to one process or say what this machine has. The stop grace
# is part of the job.
_OF_ONE_PROCESS = (
    *(REPORTS_VARIABLE, JOB_VARIABLE, "TF_CONFIG", STOP_GRACE_VARIABLE),
    "TF_ENABLED_DEVICE_TYPES",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RayBackend:
    """Runs jobs in a Ray cluster that this machine is a node of.

    Attributes:
        address: "host:port" of the cluster's head node. "auto" uses RAY_ADDRESS or, if
            that is not set, the cluster that runs on this machine.
        placement: "spread" over many nodes, or "pack" on few.
        working_dir: A folder that is copied to the nodes, and in which the tasks run.
            None runs them in the current folder, which all nodes must have.
        placement_timeout_secs: How long the job may wait for room, also on nodes that
            have yet to join; None for five minutes.
        console: Where the output lines of the tasks go.
    """

    address: str = "auto"
    placement: str = "spread"
    working_dir: str | None = None
    placement_timeout_secs: float | None = None
    console: Console = dataclasses.field(default_factory=Console)

    def __post_init__(self) -> None:
        """Check that Ray is installed.

        Raises:
            ConfigError: If it is not.
        """
        # Ray reports lost nodes with long excerpts of its logs; we report them in one
        # line.
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
        try:
            import ray  # noqa: F401 - needed by the modules that `submit` imports
        except ImportError as error:
            raise ConfigError(
                f"the Ray back end needs Ray, which cannot be imported ({error}); "
                "install it with: pip install 'estimator-runtime[ray]'"
            ) from error

    def submit(self, job: Job) -> SupervisedJob:
        """Reserve room in the cluster and start a job there; see `Backend.submit`.

        Raises:
            ConfigError: If TF_CONFIG is set in this process, a variable has an invalid
                value, no cluster answers, or Ray can never provide what the job needs.
            LaunchError: If there is no room in time.
        """
        from estimator_runtime.launch.backends.ray.cluster import RayCluster, connect
        from estimator_runtime.launch.backends.ray.tasks import RayTasks

        check_launch(os.environ)
        screen = Screen(self.console, DisplaySettings.of(job, os.environ))
        connect(self.address, self.working_dir)
        job = dataclasses.replace(job, env={**_shared_variables(os.environ), **job.env})
        folder = os.getcwd() if self.working_dir is None else None
        cluster = RayCluster(job, self.placement, folder, self.console)
        try:
            cluster.reserve(self.placement_timeout_secs or _PLACEMENT_SECS)
            tasks = RayTasks(job, cluster, self.console)
            return SupervisedJob(job, tasks, screen, "ray")
        except BaseException:
            cluster.close()
            raise


def _shared_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(_PREFIXES) and name not in _OF_ONE_PROCESS
    }
