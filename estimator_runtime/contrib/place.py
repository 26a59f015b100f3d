"""The place of a task in its cluster, by `tf.contrib.learn`'s rules for TF_CONFIG.

These are the rules of TensorFlow 1.15, which are looser than those of `tf.estimator`. A
cluster needs no chief. A task needs neither type nor index, and no cluster either.
`TFConfig` checks the cluster and the settings, and this module checks the task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from estimator_runtime.config.cluster_spec import Cluster, shown
from estimator_runtime.config.role import check_index, check_index_in_job, read_task
from estimator_runtime.config.tf_config import SETTINGS, TFConfig, parse
from estimator_runtime.errors import ConfigError


class Environment:
    """Platform kinds: the values of TF_CONFIG's `environment`."""

    CLOUD = "cloud"
    GOOGLE = "google"
    LOCAL = "local"


class TaskType:
    """The task types with a special meaning here; a cluster may name others."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A task and its cluster.

    Attributes:
        cluster: Task type to addresses; empty without a cluster.
        task_type: Type of this task, or None.
        task_id: Index of this task, 0 or more; 0 if TF_CONFIG has none.
        environment: Platform kind.
        service: What the platform says about itself, or None.
        model_dir: TF_CONFIG's folder of checkpoints and summaries, or None.
    """

    cluster: Cluster
    task_type: str | None
    task_id: int
    environment: str
    service: dict[str, Any] | None
    model_dir: str | None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Place:
        """Read and check TF_CONFIG, except for what `check_task` checks.

        Args:
            environ: The environment, such as `os.environ`. A missing or empty TF_CONFIG
                stands for a run without a cluster.

        Raises:
            ConfigError: (a ValueError) If it cannot be used.
            ConfigTypeError: (also a TypeError) For a wrong type where TensorFlow
                raises TypeError.
        """
        document = parse(environ.get("TF_CONFIG") or "{}")
        # Without the task, which TFConfig would check against the cluster.
        tf_config = TFConfig(
            cluster=Cluster(document.get("cluster", {})),
            **{name: document.get(name) for name in SETTINGS},
        )
        tf_config.cluster.check_addresses()
        task_type, task_id = _type_and_index(document.get("task", {}))
        return cls(
            cluster=tf_config.cluster,
            task_type=task_type,
            task_id=task_id,
            environment=tf_config.environment or Environment.LOCAL,
            service=tf_config.service,
            model_dir=tf_config.model_dir,
        )

    def check_task(self) -> None:
        """Check that the cluster has this task.

        As in TensorFlow 1.15, these are valid too: no cluster, no task type, and an
        evaluator alongside a single task.

        Raises:
            ConfigError: If it has not. The message names the type or the index, and
                what is valid.
        """
        if not self.cluster or self.task_type is None or self._is_listed():
            return
        if self._addresses:
            check_index_in_job(self.cluster, self.task_type, self.task_id)
        elif self.task_type != "evaluator" or not self._is_alone():
            raise ConfigError(
                f"TF_CONFIG: task.type is {shown(self.task_type)}, but "
                f"{self.task_type[:60]} is not a valid task_type in this cluster; use "
                f"one of {shown(list(self.cluster))}"
            )

    @property
    def address(self) -> str:
        """The session target of this task: "" in a cluster of one, or if not listed."""
        if self._is_alone() or not self._is_listed():
            return ""
        return f"grpc://{self._addresses[self.task_id]}"

    @property
    def is_chief(self) -> bool:
        """Whether this task is the chief.

        That is worker 0, or master 0 in the cloud, or task 0 without a type.
        """
        cloud = self.environment == Environment.CLOUD
        chief = TaskType.MASTER if cloud else TaskType.WORKER
        return self.task_id == 0 and self.task_type in (None, chief)

    @property
    def global_id(self) -> int | None:
        """The index of this task among all tasks, with the chief first and the ps last.

        It is 0 without a cluster, and None if the cluster does not list the task.
        """
        if not self.cluster:
            return 0
        if not self._is_listed():
            return None
        mine = _rank(cast(str, self.task_type))  # a task that is listed has a type
        before = [job for job in self.cluster if _rank(job) < mine]
        return self.count(*before) + self.task_id

    def count(self, *task_types: str) -> int:
        """Return the number of tasks that have one of these types."""
        return sum(len(self.cluster.get(each, ())) for each in task_types)

    @property
    def _addresses(self) -> tuple[str, ...]:
        return self.cluster.get(self.task_type or "", ())

    def _is_alone(self) -> bool:
        return self.count(*self.cluster) <= 1

    def _is_listed(self) -> bool:
        return self.task_id < len(self._addresses)


def _rank(job: str) -> tuple[int, str]:
    return {"chief": 0, TaskType.MASTER: 0, TaskType.PS: 2}.get(job, 1), job


def _type_and_index(task: object) -> tuple[str | None, int]:
    """Return the type and index of TF_CONFIG's "task"; null counts as absent."""
    fields = read_task(task)
    task_type, index = fields.get("type"), fields.get("index")
    if not isinstance(task_type, (str, type(None))) or task_type == "":
        raise ConfigError(
            f"TF_CONFIG: task.type is {shown(task_type)}, not the name of a job; "
            'use one such as "worker", or leave type out'
        )
    if index is None:
        return task_type, 0
    check_index(index, "0 or more, or leave index out")
    return task_type, index
