"""Starts the tasks of a job, and starts them again while their budget lasts."""

import os

from estimator_runtime.cluster import Cluster
from estimator_runtime.launch.restarts import Budget
from estimator_runtime.role import TaskType
from estimator_runtime.tf_config import TFConfig
from estimator_runtime.waits import (
    LOCAL_WAITS,
    PEER_TIMEOUT_VARIABLE,
    STOP_GRACE_VARIABLE,
)

# A task that is silent to the others is mostly one that is silent to the launcher, who
# kills it then: they wait so much longer than the launcher.
_PEERS_WAIT_LONGER = 1.5


class Starts:
    """Starts tasks with a TF_CONFIG each; a gang is started again as a whole.

    Attributes:
        has_begun: Whether the tasks have been started for the first time.
        is_anew: Whether all with an address are about to get new ones, of which an
            evaluator has to know too.
    """

    def __init__(self, job, tasks, watches):
        """Know the job and its tasks.

        Args:
            job: The `Job`.
            tasks: The `Tasks` that can start them.
            watches: The `Watch` of every task.
        """
        self._job, self._tasks, self._watches = job, tasks, watches
        self._trainers = [watch for watch in watches if watch.task in job.trainers]
        self.is_anew = False
        self.has_begun = False
        if job.is_gang:
            shared = Budget(job.max_restarts, job.refill_restarts_secs)
            for watch in self._trainers:
                watch.budget = shared
        self._cluster = Cluster()
        peer_timeout_secs = _PEERS_WAIT_LONGER * job.heartbeat_timeout_secs
        waits = {**LOCAL_WAITS, PEER_TIMEOUT_VARIABLE: f"{peer_timeout_secs:g}"}
        # Those of the user win.
        self._waits = {
            name: job.env.get(name, os.environ.get(name, value))
            for name, value in waits.items()
        }
        # The job has taken the user's: launcher and tasks must mean the same.
        self._waits[STOP_GRACE_VARIABLE] = f"{job.grace_secs:g}"

    @property
    def is_waiting(self):
        """Whether a task is to be started yet."""
        planned = any(watch.restart_at is not None for watch in self._watches)
        return planned or not self.has_begun

    def gang(self, watch):
        """Give those that fail together with a task, itself among them."""
        # With the address of one changes the TF_CONFIG of all.
        if watch.is_displaced or self.is_anew:
            return [each for each in self._watches if not each.has_left]
        is_in_gang = self._job.is_gang and watch in self._trainers
        return self._trainers if is_in_gang else [watch]

    def plan(self, watch, now):
        """Plan the restart of a task, and of its gang, for which there is budget.

        Returns:
            The seconds until then.
        """
        delay = watch.budget.spend(watch.failure)
        self.is_anew = self.is_anew or watch.is_displaced
        for each in self.gang(watch):
            each.restart_at = now + delay
        return delay

    def credit(self, watch, report: dict, now: float) -> None:
        """Credit the budgets of a task, and of those that serve it, with its progress.

        Args:
            watch: The `Watch` of the task.
            report: What it has reported just now.
            now: The time.
        """
        step = report.get("step", report.get("metrics", {}).get("global_step"))
        if step is None:
            return
        folder = watch.report.get("model_dir") or watch.report.get("checkpoint_dir")
        credited = [watch]
        if watch is self._trainers[0]:  # a ps takes no steps of its own
            credited += [it for it in self._watches if it.task.type == TaskType.PS]
        for each in credited:
            each.budget.advance(folder, int(step), now)

    def takes_along(self, watch):
        """Tell whether a task that has ended is to be started again with others.

        An evaluator that had to go, as the others are given new addresses, is started
        with them: that costs no restart.
        """
        planned = [it.restart_at for it in self._watches if it.restart_at is not None]
        is_evaluator = watch.task.type == TaskType.EVALUATOR
        if planned and is_evaluator and watch.is_displaced:
            watch.restart_at = max(planned)
            self.is_anew = True
        return watch.restart_at is not None

    def due(self, now):
        """Start all for the first time, or those again whose time has come.

        Raises:
            LaunchError: If there is no place for them.
        """
        if not self.has_begun:
            self.has_begun = self._place()
            if self.has_begun:
                self._start(self._watches, now)
            return
        for watch in self._watches:
            if watch.restart_at is None or now < watch.restart_at:
                continue
            gang = self.gang(watch)
            if len(gang) == 1 and not self.is_anew:
                self._start(gang, now)
            elif any(each.is_running for each in gang):
                continue  # those have been killed, and are about to end
            elif self._place():
                self.is_anew = False
                self._start(gang, now)

    def _place(self):
        addressed = [
            task
            for task in self._job.tasks
            # Multi-worker strategies look for their evaluator in the cluster.
            if task.type != TaskType.EVALUATOR or self._job.is_gang
        ]
        cluster = self._tasks.place(tuple(addressed))
        self._cluster = cluster or self._cluster
        return cluster is not None

    def _start(self, watches, now):
        for watch in watches:
            task = watch.task
            config = TFConfig(
                cluster=self._cluster, task_type=task.type, task_index=task.index
            )
            environ = {**self._waits, "TF_CONFIG": config.to_json()}
            self._tasks.start(watch.start(now), environ)
