"""The start of tasks and their restarts, each with a TF_CONFIG of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.role import TaskType
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.config.waits import (
    LOCAL_WAITS,
    PEER_TIMEOUT_VARIABLE,
    STOP_GRACE_VARIABLE,
)
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.supervisor.restart_policy import Budget
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Tasks

# A task that does not answer its peers is mostly silent to the launcher too, which
# kills it. So the peers wait longer than the launcher by this factor.
_PEERS_WAIT_LONGER = 1.5


class Starts:
    """Starts each task with its own TF_CONFIG, and restarts a gang as a whole.

    Args:
        job: The job.
        tasks: The back end's means to start the tasks.
        states: The state of every task, in the order in which they are started.

    Attributes:
        has_begun: Whether the tasks have been started for the first time.
        is_anew: Whether all tasks with an address are about to get new addresses, which
            an evaluator has to be told too.
    """

    def __init__(self, job: Job, tasks: Tasks, states: Sequence[TaskState]) -> None:
        self._job, self._tasks, self._states = job, tasks, states
        self._trainers = [state for state in states if state.task in job.trainers]
        self.is_anew = False
        self.has_begun = False
        if job.is_gang:
            shared = Budget(job.max_restarts, job.refill_restarts_secs)
            for state in self._trainers:
                state.budget = shared
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

    @property
    def is_waiting(self) -> bool:
        """Whether a task is yet to be started."""
        planned = any(state.restart_at is not None for state in self._states)
        return planned or not self.has_begun

    def gang(self, state: TaskState) -> Sequence[TaskState]:
        """Return the tasks that are restarted together with a task, and the task."""
        # A new address of one task changes the TF_CONFIG of all tasks.
        if state.is_displaced or self.is_anew:
            return [each for each in self._states if not each.has_left]
        is_in_gang = self._job.is_gang and state in self._trainers
        return self._trainers if is_in_gang else [state]

    def plan(self, state: TaskState, now: float) -> float:
        """Plan the restart of a failed task and its gang, whose budget allows it.

        Returns:
            The seconds until the restart.
        """
        delay = state.budget.spend(state.failure)
        self.is_anew = self.is_anew or state.is_displaced
        for each in self.gang(state):
            each.restart_at = now + delay
        return delay

    def credit(self, state: TaskState, report: dict[str, Any], now: float) -> None:
        """Credit the progress in a report of a task to its budget.

        What the leader reports is progress of each ps too.
        """
        step = report.get("step", report.get("metrics", {}).get("global_step"))
        if step is None:
            return
        folder = state.report.get("model_dir") or state.report.get("checkpoint_dir")
        credited = [state]
        if state is self._trainers[0]:  # a ps takes no steps of its own
            credited += [it for it in self._states if it.task.type == TaskType.PS]
        for each in credited:
            each.budget.advance(folder, int(step), now)

    def takes_along(self, state: TaskState) -> bool:
        """Return whether a task that has ended is restarted together with others."""
        return state.restart_at is not None

    def due(self, now: float) -> None:
        """Start all tasks for the first time, or restart those that are due.

        Raises:
            LaunchError: If there is no place for them.
        """
        if not self.has_begun:
            self.has_begun = self._place()
            if self.has_begun:
                self._start(self._states, now)
            return
        for state in self._states:
            if state.restart_at is None or now < state.restart_at:
                continue
            gang = self.gang(state)
            if len(gang) == 1 and not self.is_anew:
                self._start(gang, now)
            elif any(each.is_running for each in gang):
                continue  # they have been killed, and are about to end
            elif self._place():
                self.is_anew = False
                self._start(gang, now)

    def _place(self) -> bool:
        """Get an address for every task; return False if it is too early for that."""
        cluster = self._tasks.place(self._job.addressed)
        self._cluster = cluster or self._cluster
        return cluster is not None

    def _start(self, states: Iterable[TaskState], now: float) -> None:
        for state in states:
            task = state.task
            config = TFConfig(
                cluster=self._cluster, task_type=task.type, task_index=task.index
            )
            environ = {**self._waits, "TF_CONFIG": config.to_json()}
            self._tasks.start(state.start(now), environ)
