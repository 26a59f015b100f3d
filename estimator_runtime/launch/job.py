"""A job: one program, the number of tasks of each type, and their resources."""

import dataclasses
import functools
import os
from collections.abc import Mapping

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.role import TaskType
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.config.waits import (
    LOCAL_WAITS,
    PEER_TIMEOUT_VARIABLE,
    STOP_GRACE_VARIABLE,
    stop_grace_secs,
)
from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.task import Task

_TRAINERS = (TaskType.CHIEF, TaskType.WORKER)
_TYPES = (*_TRAINERS, TaskType.PS, TaskType.EVALUATOR)
# A task that does not answer its peers is mostly silent to the launcher too, which
# kills it. So the peers wait longer than the launcher by this factor.
_PEERS_WAIT_LONGER = 1.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of a task or node, for back ends that place tasks by them.

    Attributes:
        cpus: Number of cores; a fraction is allowed.
        gpus: Number of GPUs: a whole number, or a part of one. With 0, the task sees
            no GPU.
    """

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If it is several GPUs and a part of one.
        """
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ConfigError(
                f"a task takes {self.gpus:g} GPU; give a whole number with "
                "--gpus-per-worker, or less than 1"
            )

    def __str__(self) -> str:
        gpus = f" and {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus:g} CPU{gpus}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A training job, independent of the back end that runs it.

    The training is complete when the chief and the workers have ended well and the last
    step is in a readable checkpoint. Then every ps is stopped, and the job ends when
    the evaluator has ended too.

    Attributes:
        command: The arguments of `estimator-runtime run` for every task, such as
            ("train.py", "--model_dir=/ckpt") or ("-m", "package.train").
        replicas: Number of tasks by task type: chief (0 or 1), worker, ps, evaluator
            (0 or 1).
        resources: Resources of each task by task type, for back ends that place tasks
            by them; one CPU for a type without an entry.
        env: Environment variables of the tasks, in addition to those of this process.
        max_restarts: How often one task may be restarted; under a multi-worker
            strategy, how often the whole gang may be. `estimator-runtime run` starts
            the whole job as often if it loses machines.
        refill_restarts_secs: Seconds of progress without a failure after which a task,
            or the gang, has all its restarts again. Only steps that no run has reached
            before count as progress.
        heartbeat_timeout_secs: Seconds without a report and without use of the CPU
            after which a task is killed and counts as failed. After a third of that
            time the log names the task.
        grace_secs: Seconds from SIGTERM, when a task may save a checkpoint, to SIGKILL.
            The default is ESTIMATOR_RUNTIME_STOP_GRACE_SECS if that is set, else 30.
        evaluation_timeout_secs: Seconds that the evaluator may take after the training;
            None for no limit as long as it gives signs of life.
        log_dir: Folder for the whole log of each task; None for "logs" in the model
            directory.
    """

    command: tuple[str, ...]
    replicas: Mapping[str, int]
    resources: Mapping[str, Resources] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_restarts: int = 3
    refill_restarts_secs: float = 3600.0
    heartbeat_timeout_secs: float = 30.0
    grace_secs: float = dataclasses.field(default_factory=stop_grace_secs)
    evaluation_timeout_secs: float | None = None
    log_dir: str | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If a task type is unknown, no task would train, or `env` has a
                variable that the launcher sets. Numbers are not checked.
        """
        if not self.command:
            raise ConfigError("Job: command is empty; name the script to run")
        for field in ("replicas", "resources"):
            if unknown := [each for each in getattr(self, field) if each not in _TYPES]:
                raise ConfigError(
                    f"Job: {field} has the task type {unknown[0]!r}; use {_TYPES}"
                )
        for task_type, count in self.replicas.items():
            if count > 1 and task_type in (TaskType.CHIEF, TaskType.EVALUATOR):
                raise ConfigError(
                    f"Job: replicas[{task_type!r}] is {count}; there can be only one"
                )
        if not self.trainers:
            raise ConfigError(
                f"Job: replicas is {dict(self.replicas)}, which has no chief and no "
                "worker; add one"
            )
        for name in ("TF_CONFIG", STOP_GRACE_VARIABLE):
            if name in self.env:
                raise ConfigError(
                    f"Job: env sets {name}, which the launcher makes for each task; "
                    "leave it out (grace_secs is the stop grace)"
                )

    @functools.cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in the order in which they are started."""
        order = (TaskType.PS, TaskType.CHIEF, TaskType.WORKER, TaskType.EVALUATOR)
        return tuple(
            Task(type=task_type, index=index)
            for task_type in order
            for index in range(self.replicas.get(task_type, 0))
        )

    @property
    def addressed(self) -> tuple[Task, ...]:
        """The tasks that need an address."""
        # Multi-worker strategies look up their evaluator in the cluster.
        return tuple(
            task
            for task in self.tasks
            if task.type != TaskType.EVALUATOR or self.is_gang
        )

    def resources_of(self, task: Task) -> Resources:
        """Return the resources that a task takes."""
        return self.resources.get(task.type, Resources())

    def environ_of(self, task: Task, addresses: Mapping[Task, str]) -> dict[str, str]:
        """Return the variables by which a task learns its role and its waits.

        Args:
            task: The task.
            addresses: The address of each task of `addressed`.
        """
        peer_timeout_secs = _PEERS_WAIT_LONGER * self.heartbeat_timeout_secs
        waits = {**LOCAL_WAITS, PEER_TIMEOUT_VARIABLE: f"{peer_timeout_secs:g}"}
        config = TFConfig(
            cluster=cluster_of(addresses), task_type=task.type, task_index=task.index
        )
        # Values that the user has set take precedence.
        given = {**os.environ, **self.env}
        return {
            **{name: given.get(name, value) for name, value in waits.items()},
            # `grace_secs` already has the user's value.
            STOP_GRACE_VARIABLE: f"{self.grace_secs:g}",
            "TF_CONFIG": config.to_json(),
        }

    @functools.cached_property
    def trainers(self) -> tuple[Task, ...]:
        """The tasks that train; the first one is the leader."""
        return tuple(task for task in self.tasks if task.type in _TRAINERS)

    @property
    def is_gang(self) -> bool:
        """Whether the trainers form a gang, in which one failure fails all of them.

        That is the case for several trainers without a ps, because their all-reduce
        needs every one of them.
        """
        return not self.replicas.get(TaskType.PS) and len(self.trainers) > 1


def cluster_of(addresses: Mapping[Task, str]) -> Cluster:
    """Return the cluster of tasks with these addresses, given in their order."""
    jobs: dict[str, list[str]] = {}
    for task, address in addresses.items():
        jobs.setdefault(task.type, []).append(address)
    return Cluster(jobs)
