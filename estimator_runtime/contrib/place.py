"""Where TF_CONFIG puts a task, by the rules of `tf.contrib.learn` in TensorFlow 1.15.

They are looser than `tf.estimator`'s: a cluster needs no chief, a task needs neither
type nor index, and may stand alone, without a cluster. Cluster and settings are
checked by `TFConfig`, the task here.
"""

import dataclasses

from estimator_runtime.cluster import Cluster, shown
from estimator_runtime.errors import ConfigError
from estimator_runtime.role import check_index, check_index_in_job, read_task
from estimator_runtime.tf_config import SETTINGS, TFConfig, parse


class Environment:
    """Kinds of platform: the values of TF_CONFIG's `environment`."""

    CLOUD = "cloud"
    GOOGLE = "google"
    LOCAL = "local"


class TaskType:
    """The task types that have a meaning here; a cluster may name others."""

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
        environment: Kind of platform.
        service: What the platform says about itself, or None.
        model_dir: TF_CONFIG's folder of checkpoints and summaries, or None.
    """

    cluster: Cluster
    task_type: str | None
    task_id: int
    environment: str
    service: dict | None
    model_dir: str | None

    @classmethod
    def from_environ(cls, environ):
        """Read and check TF_CONFIG, except for `check_task`.

        Args:
            environ: The environment, such as `os.environ`. No TF_CONFIG, or an empty
                one, is a run without a cluster.

        Raises:
            ConfigError: (a ValueError) If it cannot be used.
            ConfigTypeError: (also a TypeError) For a wrong type where TensorFlow
                raises TypeError.
        """
        document = parse(environ.get("TF_CONFIG") or "{}")
        # Without the task, which TFConfig would hold against its cluster.
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

    def check_task(self):
        """Refuse a task that its cluster does not have.

        Right as well: no cluster, no task type, and an evaluator beside a single
        task, as 1.15 had them.

        Raises:
            ConfigError: Naming the type or the index, and what would do.
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
    def address(self):
        """Session target of this task: "" in a cluster of one, or without a type."""
        if self._is_alone() or not self._is_listed():
            return ""
        return f"grpc://{self._addresses[self.task_id]}"

    @property
    def is_chief(self):
        """Whether this task leads: worker 0, in the cloud master 0, or nameless 0."""
        cloud = self.environment == Environment.CLOUD
        chief = TaskType.MASTER if cloud else TaskType.WORKER
        return self.task_id == 0 and self.task_type in (None, chief)

    @property
    def global_id(self):
        """Number of this task among all tasks, chief first, ps last.

        Without a cluster it is 0; for a task that its cluster does not list, None.
        """
        if not self.cluster:
            return 0
        if not self._is_listed():
            return None
        before = [job for job in self.cluster if _rank(job) < _rank(self.task_type)]
        return self.count(*before) + self.task_id

    def count(self, *task_types):
        """Count the tasks of some types."""
        return sum(len(self.cluster.get(each, ())) for each in task_types)

    @property
    def _addresses(self):
        return self.cluster.get(self.task_type or "", ())

    def _is_alone(self):
        return self.count(*self.cluster) <= 1

    def _is_listed(self):
        return self.task_id < len(self._addresses)


def _rank(job):
    return {"chief": 0, TaskType.MASTER: 0, TaskType.PS: 2}.get(job, 1), job


def _type_and_index(task):
    """Give type and index of TF_CONFIG's "task"; null is as good as absent."""
    task = read_task(task)
    task_type, index = task.get("type"), task.get("index")
    if not isinstance(task_type, (str, type(None))) or task_type == "":
        raise ConfigError(
            f"TF_CONFIG: task.type is {shown(task_type)}, not the name of a job; "
            'use one such as "worker", or leave type out'
        )
    if index is None:
        return task_type, 0
    check_index(index, "0 or more, or leave index out")
    return task_type, index
