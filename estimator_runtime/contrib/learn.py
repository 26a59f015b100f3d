"""`tf.contrib.learn`'s RunConfig and ClusterConfig, as in TensorFlow 1.15."""

from __future__ import annotations

import dataclasses
import numbers
import os
import pprint
import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, cast

import tensorflow as tf

from estimator_runtime.checkpoint import interval
from estimator_runtime.config import tf1_mode
from estimator_runtime.config.cluster_spec import Cluster, shown
from estimator_runtime.config.role import check_index, check_index_in_job, read_task
from estimator_runtime.config.tf_config import SETTINGS, TFConfig, parse
from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.patching import frozen
from estimator_runtime.session import run_config, run_config_values

__all__ = ["ClusterConfig", "Environment", "RunConfig", "TaskType"]

_DEPRECATED = (
    "estimator_runtime.contrib.learn.RunConfig is deprecated: use "
    "estimator_runtime.RunConfig (tf.estimator.RunConfig), with a session_config "
    "in place of num_cores, log_device_placement and gpu_memory_fraction"
)
# Properties in which two configs may differ and still stand for the same run.
_NOT_IN_UID = (
    "tf_random_seed",
    "save_summary_steps",
    "save_checkpoints_steps",
    "save_checkpoints_secs",
    "session_config",
    "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours",
    "log_step_count_steps",
)


class ClusterConfig:
    """The content of TF_CONFIG for this task, by the rules of TensorFlow 1.15.

    TF_CONFIG need not contain any job or task. The chief is worker 0; if the
    environment is "cloud", master 0; without a task type, task 0.

    Args:
        master: Session target, such as "grpc://host:port". None takes the task's own
            address, or "" (this process) if it is the only task or has no type. If you
            give a target, the task need not be part of the cluster.
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


class RunConfig(ClusterConfig, run_config.RunConfig):
    """Deprecated: the configuration of an Estimator in `tf.contrib.learn`.

    Every Estimator accepts it. `replace()`, `device_fn`, `train_distribute` and
    everything else that is not described here come from `estimator_runtime.RunConfig`.

    It differs from TensorFlow 1.15 in three ways. Values that no Estimator accepts are
    rejected here and not later. `service` and `global_id_in_cluster` have values; the
    latter is None for a task that is not listed in its cluster. And `tf_config` applies
    to the sessions of an Estimator (see `session_config` below), where 1.15 applied it
    to servers only.

    Args:
        master: See `ClusterConfig`.
        num_cores: Number of threads within an op, and of ops that run at a time. 0
            leaves both to TensorFlow.
        log_device_placement: Whether to log on which device each op runs.
        gpu_memory_fraction: Fraction of each GPU's memory to take at the start, 0 to 1.
        tf_random_seed: Seed of random ops and initializers, or None.
        save_summary_steps: Steps between summaries. 0 turns summaries off.
        save_checkpoints_secs: Seconds between checkpoints. None saves none by time. 0
            means None if you give steps. Otherwise 0 means the interval that follows
            from `--checkpoint-overhead` or ESTIMATOR_RUNTIME_CHECKPOINT_OVERHEAD, or
            600 if neither is set.
        save_checkpoints_steps: Steps between checkpoints, or None. If you give seconds
            as well, no chief can train.
        keep_checkpoint_max: How many of the newest checkpoints to keep. None or 0
            keeps all.
        keep_checkpoint_every_n_hours: In addition, keep one checkpoint for good every
            so many hours.
        log_step_count_steps: Steps between log lines. None turns them off.
        protocol: Protocol of the servers: None, "grpc" or "grpc+verbs".
        evaluation_master: See `ClusterConfig`.
        model_dir: Folder for checkpoints and summaries. None uses TF_CONFIG's
            `model_dir`, if it has one. If both are given, they must be equal.
        session_config: `tf.compat.v1.ConfigProto` to use in place of `tf_config`. It
            is used as it is: in a cluster no device filters are added. With None, the
            property stays None, but an Estimator's copy of the config gets TensorFlow's
            usual one with `tf_config` added, and with parameter servers the device
            filters. (`replace` treats exactly that usual config as None.)
        session_creation_timeout_secs: Longest wait for other tasks, in seconds. It
            limits how long a chief waits for a ps; how long a worker waits for its
            session, and for a chief that has ended; and how long a ps and an evaluator
            wait for the trainers. None sets no limit.

    Raises:
        ConfigError: (a ValueError) If TF_CONFIG or an argument cannot be used.
        ConfigTypeError: (also a TypeError) If an argument has the wrong type.
    """

    tf_config = property(
        attrgetter("_tf_config"),
        doc="ConfigProto of num_cores, log_device_placement, gpu_memory_fraction.",
    )

    def __init__(
        self,
        master: str | None = None,
        num_cores: int | None = 0,
        log_device_placement: bool | None = False,
        gpu_memory_fraction: float | None = 1,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_secs: float | None = 0,
        save_checkpoints_steps: int | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10000,
        log_step_count_steps: int | None = 100,
        protocol: str | None = None,
        evaluation_master: str | None = "",
        model_dir: str | os.PathLike | None = None,
        session_config: tf.compat.v1.ConfigProto | None = None,
        session_creation_timeout_secs: float | None = 7200,
    ) -> None:
        # One warning per construction, at the caller's line. Python shows it once per
        # line, and by default to developers only. `replace` constructs nothing. In
        # TensorFlow 1 mode, the program did not choose this class.
        if not tf1_mode.is_on():
            warnings.warn(_DEPRECATED, DeprecationWarning, stacklevel=2)
        place = Place.from_environ(os.environ)
        self._take(place, master, evaluation_master)
        self._service = place.service
        self._global_id_in_cluster = place.global_id
        self._tf_config = _session_options(
            num_cores, log_device_placement, gpu_memory_fraction
        )
        if save_checkpoints_secs == 0:
            is_by_time = save_checkpoints_steps is None
            save_checkpoints_secs = interval.DEFAULT_SECS if is_by_time else None
        given = {
            "tf_random_seed": tf_random_seed,
            "save_summary_steps": save_summary_steps,
            "save_checkpoints_secs": save_checkpoints_secs,
            "save_checkpoints_steps": save_checkpoints_steps,
            "keep_checkpoint_max": keep_checkpoint_max,
            "keep_checkpoint_every_n_hours": keep_checkpoint_every_n_hours,
            "log_step_count_steps": log_step_count_steps,
            "protocol": protocol,
            "model_dir": model_dir,
            "session_config": session_config,
            "session_creation_timeout_secs": session_creation_timeout_secs,
            "train_distribute": None,
            "eval_distribute": None,
            "experimental_distribute": None,
            "experimental_max_worker_delay_secs": None,
            "device_fn": None,
            "checkpoint_save_graph_def": True,
        }
        given = run_config_values.unwrapped(given)
        run_config_values.check(given)
        for name, value in given.items():
            setattr(self, f"_{name}", value)
        with run_config_values.errors_of_frozen_class(given):
            frozen.validate_properties(self)
        self._model_dir = run_config_values.resolve_model_dir(
            model_dir, place.model_dir
        )

    # docs/run_config.md shows the parameters of the next two methods as `str` writes
    # them, with their annotations, so they have none.
    def training_session_kwargs(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the arguments of a session, with `tf_config` if it applies."""
        arguments = super().training_session_kwargs(*args, **kwargs)
        if self.session_config is None:
            arguments["config"] = self._usual_session_config()
        return arguments

    def uid(self, whitelist: Iterable[str] | None = None) -> str:
        """Return text that is equal for equal configs, in this and any other process.

        Functions are described by name, and strategies by class.

        Args:
            whitelist: Names of the properties to leave out, so that they may differ.
                None leaves out the seed, `session_config`, and the settings of how
                often to save, keep and log.

        Returns:
            One line, "name=value, ...", with all other properties. Its form may change
            with the version of this package.
        """
        names = _NOT_IN_UID if whitelist is None else whitelist
        left_out = {f"_{name}" for name in names}
        state = sorted((n, v) for n, v in vars(self).items() if n not in left_out)
        return ", ".join(f"{name}={_one_line(value)}" for name, value in state)

    def _maybe_overwrite_session_config_for_distributed_training(self) -> None:
        """Add `tf_config` to TensorFlow's usual session config; change no other.

        The frozen class calls this hook to complete a session config. Our class calls
        it from `replace()`, by which an Estimator sets the usual session config in its
        copy of a config that has none.
        """
        if self._session_config == frozen.default_session_config():
            self._session_config = self._usual_session_config()

    def _usual_session_config(self) -> tf.compat.v1.ConfigProto:
        """Return a new copy of TensorFlow's usual session config plus `tf_config`."""
        filtered = None
        if self.num_ps_replicas:
            # Without parameter servers the tasks talk to each other, so no filters.
            filtered = self._get_default_session_config_distributed()
        usual = filtered or frozen.default_session_config()
        usual.MergeFrom(self.tf_config)
        return usual


def _one_line(value: Any) -> str:
    """Return text for a value, with sorted dicts and without memory addresses."""
    if isinstance(value, tf.train.ClusterSpec):
        value = sorted(value.as_dict().items())
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 100.0 is the same setting as 100
    text = pprint.pformat(value, width=sys.maxsize)
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(text.split()))


def _session_options(
    num_cores: int | None,
    log_device_placement: bool | None,
    gpu_memory_fraction: float | None,
) -> tf.compat.v1.ConfigProto:
    """Return a ConfigProto of the three arguments; None counts as not given."""
    whole = numbers.Integral
    _check("num_cores", num_cores, whole, "a number of threads, or 0")
    _check("log_device_placement", log_device_placement, whole, "a bool")
    _check(
        "gpu_memory_fraction", gpu_memory_fraction, numbers.Real, "a fraction, 0 to 1"
    )
    threads = None if num_cores is None else int(num_cores)
    return tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
        log_device_placement=bool(log_device_placement),
        gpu_options=tf.compat.v1.GPUOptions(
            per_process_gpu_memory_fraction=gpu_memory_fraction
        ),
    )


def _check(name: str, value: Any, kind: type[Any], remedy: str) -> None:
    if value is None:
        return
    refused = f"RunConfig: {name} is {value!r} ({type(value).__name__})"
    if not isinstance(value, kind):
        raise ConfigTypeError(f"{refused}; give {remedy}")
    # The range of an int32 field; a negative number of threads aborts the process.
    if not 0 <= value < 2**31:
        raise ConfigError(f"{refused}, which is out of range; give {remedy}")


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
    """A task and its cluster, by `tf.contrib.learn`'s rules for TF_CONFIG.

    These are the rules of TensorFlow 1.15, which are looser than those of
    `tf.estimator`. A cluster needs no chief. A task needs neither type nor index, and
    no cluster either. `TFConfig` checks the cluster and the settings, and this class
    checks the task.

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
