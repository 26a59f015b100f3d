"""Where TF_CONFIG puts a task, by the rules of `tf.contrib.learn` in TensorFlow 1.15.

They are looser than `tf.estimator`'s: a cluster needs no chief, a task needs neither
type nor index, and may stand alone, without a cluster. Cluster and settings are
checked by `TFConfig`, the task here.
"""

import contextlib
import dataclasses
import json
import os
import re

from estimator_runtime.cluster import Cluster, shown
from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.tf_config import TFConfig


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
        text = environ.get("TF_CONFIG") or "{}"
        task: object = {}
        # TFConfig says what is wrong with a text that cannot be taken apart here.
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(text)
            if isinstance(document, dict):
                task = document.pop("task", task)
                text = json.dumps(document)
        tf_config = TFConfig.from_environ(
            {"TF_CONFIG": text}, chief_required=False, task_required=False
        )
        task_type, task_id = _read_task(task)
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
        count = len(self._addresses)
        if count:
            noun = "address" if count == 1 else "addresses"
            usable = "0" if count == 1 else f"0 to {count - 1}"
            raise ConfigError(
                f"TF_CONFIG: task.index is {self.task_id}, but "
                f"cluster[{shown(self.task_type)}] has {count} {noun}, so "
                f"{self.task_id} is not a valid task_id for task_type "
                f"{self.task_type[:60]}; use {usable}"
            )
        if self.task_type != "evaluator" or not self._is_alone():
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

    def resolve_model_dir(self, given):
        """Choose between RunConfig's model_dir and TF_CONFIG's.

        Args:
            given: RunConfig's, as str, bytes, os.PathLike or None.

        Returns:
            The folder, or None if neither names one.

        Raises:
            ConfigError: If they differ.
        """
        folder = None if given is None else os.fspath(given)
        if None not in (folder, self.model_dir) and folder != self.model_dir:
            raise ConfigError(
                f"RunConfig: model_dir is {folder!r}, but TF_CONFIG has "
                f"{self.model_dir!r}. `model_dir` provided in RunConfig construct, if "
                "set, must have the same value as the model_dir in TF_CONFIG. Leave "
                "one of them out"
            )
        return folder if folder is not None else self.model_dir

    @property
    def _addresses(self):
        return self.cluster.get(self.task_type or "", ())

    def _is_alone(self):
        return self.count(*self.cluster) <= 1

    def _is_listed(self):
        return self.task_id < len(self._addresses)


def _rank(job):
    return {"chief": 0, TaskType.MASTER: 0, TaskType.PS: 2}.get(job, 1), job


def _read_task(task):
    """Give type and index of TF_CONFIG's "task"; null is as good as absent."""
    if not isinstance(task, dict):
        raise ConfigError(
            f"TF_CONFIG: task is {shown(task)}, not an object; "
            'use one such as {"type": "worker", "index": 0}'
        )
    task_type, index = task.get("type"), task.get("index")
    if not isinstance(task_type, (str, type(None))) or task_type == "":
        raise ConfigError(
            f"TF_CONFIG: task.type is {shown(task_type)}, not the name of a job; "
            'use one such as "worker", or leave type out'
        )
    return task_type, 0 if index is None else _read_index(index)


def _read_index(index):
    """Give the index as int; launch scripts write it as "1", and 1.15 took that."""
    if isinstance(index, str) and re.fullmatch("-?[0-9]{1,18}", index.strip()):
        index = int(index)
    remedy = "use a whole number from 0, or leave index out"
    if isinstance(index, bool) or not isinstance(index, int):
        # 1.15's int() raises TypeError for these, ValueError for other text.
        kind = ConfigTypeError if isinstance(index, (list, dict)) else ConfigError
        raise kind(f"TF_CONFIG: task.index is {shown(index)}, not a number; {remedy}")
    if index < 0:
        raise ConfigError(
            f"TF_CONFIG: task.index is {shown(index)}. "
            f"Task index must be non-negative number; {remedy}"
        )
    return index
