"""The start of tasks, each with a TF_CONFIG of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.config.waits import (
    LOCAL_WAITS,
    PEER_TIMEOUT_VARIABLE,
    STOP_GRACE_VARIABLE,
)
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.supervisor.machine import TaskState
from estimator_runtime.launch.task import Tasks

# A task that does not answer its peers is mostly silent to the launcher too, which
# kills it. So the peers wait longer than the launcher by this factor.
_PEERS_WAIT_LONGER = 1.5


class TaskStarter:
    """Places the tasks of a job, and starts each with its own TF_CONFIG.

    Args:
        job: The job.
        tasks: The back end's means to start the tasks.
    """

    def __init__(self, job: Job, tasks: Tasks) -> None:
        self._job, self._tasks = job, tasks
        self._cluster = Cluster()
        peer_timeout_secs = _PEERS_WAIT_LONGER * job.heartbeat_timeout_secs
        waits = {**LOCAL_WAITS, PEER_TIMEOUT_VARIABLE: f"{peer_timeout_secs:g}"}
        # Values that the user has set take precedence.
        self._waits = {
            name: job.env.get(name, os.environ.get(name, value))
            for name, value in waits.items()
        }
        # `Job.grace_secs` already holds the user's value. The launcher and the tasks
        # must use the same one.
        self._waits[STOP_GRACE_VARIABLE] = f"{job.grace_secs:g}"

    def place(self) -> bool:
        """Get an address for every task; return False if it is too early for that.

        Raises:
            LaunchError: If there is no place for them.
        """
        cluster = self._tasks.place(self._job.addressed)
        self._cluster = cluster or self._cluster
        return cluster is not None

    def start(self, states: Iterable[TaskState], now: float) -> None:
        """Start the next run of each task."""
        for state in states:
            task = state.task
            config = TFConfig(
                cluster=self._cluster, task_type=task.type, task_index=task.index
            )
            environ = {**self._waits, "TF_CONFIG": config.to_json()}
            self._tasks.start(state.start(now), environ)
