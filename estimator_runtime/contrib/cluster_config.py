"""`tf.contrib.learn`'s ClusterConfig: a task and its cluster, without training."""

import os
from operator import attrgetter

import tensorflow as tf

from estimator_runtime.contrib.place import Place, TaskType
from estimator_runtime.errors import ConfigTypeError


class ClusterConfig:
    """The content of TF_CONFIG for this task, by the rules of TensorFlow 1.15.

    TF_CONFIG need not contain any job or task. The chief is worker 0; if the
    environment is "cloud", master 0; without a task type, task 0.

    Args:
        master: Session target, such as "grpc://host:port". None takes the task's own
            address, or "" (this process) if it is the only one or has no type. Given
            one, the task need not be part of the cluster.
        evaluation_master: Session target for evaluation; None for this process.

    Raises:
        ConfigError: (a ValueError) If TF_CONFIG or an argument cannot be used.
    """

    cluster_spec = property(attrgetter("_cluster_spec"), doc="A tf.train.ClusterSpec.")
    environment = property(attrgetter("_environment"), doc='Platform kind, or "local".')
    evaluation_master = property(
        attrgetter("_evaluation_master"), doc="Session target for evaluation, or ''."
    )
    is_chief = property(attrgetter("_is_chief"), doc="Whether this is the chief.")
    master = property(attrgetter("_master"), doc="Session target; '' if local.")
    num_ps_replicas = property(attrgetter("_num_ps_replicas"), doc="Number of ps.")
    num_worker_replicas = property(
        attrgetter("_num_worker_replicas"), doc="Number of workers and masters."
    )
    task_id = property(attrgetter("_task_id"), doc="Index of this task, or 0.")
    task_type = property(attrgetter("_task_type"), doc="Type of this task, or None.")

    def __init__(
        self, master: str | None = None, evaluation_master: str | None = None
    ) -> None:
        self._take(Place.from_environ(os.environ), master, evaluation_master)

    @staticmethod
    def get_task_id() -> int:
        """Return TF_CONFIG's `task.index`, or 0 if it has none.

        Raises:
            ConfigError: If TF_CONFIG cannot be used.
        """
        return Place.from_environ(os.environ).task_id

    def _take(
        self, place: Place, master: str | None, evaluation_master: str | None
    ) -> None:
        for name, value in (
            ("master", master),
            ("evaluation_master", evaluation_master),
        ):
            if not isinstance(value, (str, type(None))):
                raise ConfigTypeError(
                    f"RunConfig: {name} is {value!r} ({type(value).__name__}); give a "
                    'session target such as "grpc://host:2222", or None'
                )
        if master is None:
            place.check_task()
        self._cluster_spec = tf.train.ClusterSpec(dict(place.cluster))
        self._environment = place.environment
        self._task_type = place.task_type
        self._task_id = place.task_id
        self._master = place.address if master is None else master
        self._evaluation_master = evaluation_master or ""
        self._num_ps_replicas = place.count(TaskType.PS)
        self._num_worker_replicas = place.count(TaskType.WORKER, TaskType.MASTER)
        self._is_chief = place.is_chief
