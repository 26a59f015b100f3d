"""`tf.estimator.RunConfig`: how an Estimator trains, and where."""

from __future__ import annotations

import abc
import copy
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint import interval
from estimator_runtime.config.options import OPTIONS, OwnOptions
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching import frozen
from estimator_runtime.patching.frozen import StockRunConfig
from estimator_runtime.session import run_config_values
from estimator_runtime.tf_internals import strategies

_USE_DEFAULT: Any = object()


@frozen.replaces("tensorflow_estimator.python.estimator.run_config")
class RunConfig(OwnOptions, StockRunConfig, metaclass=abc.ABCMeta):
    """Configuration of an Estimator's training, evaluation and prediction.

    A subclass of the frozen package's RunConfig that every Estimator accepts, with the
    same arguments in the same order, defaults, properties and `replace()`. In addition,
    TF_CONFIG is checked first, an error about a value says what is accepted, and a
    `session_config` of your own gets the cluster's device filters.

    Args:
        model_dir: Folder for checkpoints, summaries and the graph. None uses
            TF_CONFIG's `model_dir` or, without one, leaves the choice to the Estimator.
            If both are given, they must be equal.
        tf_random_seed: Seed of the random ops and initializers created inside
            model_fn. Two runs with the same seed are equal if their input is
            deterministic and they use the same number of threads and devices. None
            uses a new seed. A Keras model passed to `model_to_estimator` already has
            its weights: seed those with `tf.keras.utils.set_random_seed`.
        save_summary_steps: Steps between summaries. 0 turns summaries off.
        save_checkpoints_steps: Steps between checkpoints. Set this or
            `save_checkpoints_secs`, not both.
        save_checkpoints_secs: Seconds between checkpoints. If you set neither, it is
            600. If both are None, no checkpoints are saved.
        session_config: `tf.compat.v1.ConfigProto` of the training session, or None
            for TensorFlow's default. In a cluster, a config without device filters gets
            those that keep chief and workers from waiting for each other.
        keep_checkpoint_max: How many of the newest checkpoints to keep. None or 0
            keeps all.
        keep_checkpoint_every_n_hours: In addition, keep one checkpoint for good every
            so many hours.
        log_step_count_steps: Steps between log lines of the loss and steps/sec. None
            turns them off.
        train_distribute: `tf.distribute.Strategy` for training, or None. If you create
            a MirroredStrategy over CPUs in eager mode, its cross-device ops are
            changed to `ReductionToOneDevice`.
        device_fn: Function that takes an op and returns its device. None uses
            `replica_device_setter` in a cluster with parameter servers.
        protocol: Protocol of the servers: None, "grpc" or "grpc+verbs".
        eval_distribute: `tf.distribute.Strategy` for evaluation, or None.
        experimental_distribute: `DistributeConfig` that holds the strategies
            instead of the two arguments above.
        experimental_max_worker_delay_secs: Longest start delay of a worker, in
            seconds (int). None uses TensorFlow's own delay, up to 60.
        session_creation_timeout_secs: Longest wait for other tasks, in seconds. It
            limits how long a chief waits for a ps; how long a worker waits for its
            session, and for a chief that has ended; and how long a ps and an evaluator
            wait for the trainers. None sets no limit.
        checkpoint_save_graph_def: Whether to write the graph next to the checkpoints.
        loop: What runs the steps. "auto" is this package's loop. "plans" is the same
            loop, but it never runs several steps in one call. "stock" is TensorFlow's
            own session, which calls each hook at each step. The results are the same;
            choose "stock" to find out whether the loop causes a problem. None takes the
            command's `--loop`, else ESTIMATOR_RUNTIME_LOOP, else "auto".
        steps_per_run: How many training steps one call of the session may run. "auto"
            runs steps together at which no hook acts, for a tenth of a second at most,
            once that pays, and where it is certain that the results are those of single
            steps; docs/performance.md says where. A number, 1 or more, is the most
            steps of a call, and runs them together without asking whether that pays.
            Hooks act at the same steps in either case. None takes the command's
            `--steps-per-run`, else ESTIMATOR_RUNTIME_STEPS_PER_RUN, else "auto".
        pack_transfers: In a cluster with parameter servers, whether the tasks send each
            other the tensors of a step as fewer and larger ones; see
            docs/performance.md. By default it does if several tasks train. None takes
            the command's `--pack-transfers` or
            `--no-pack-transfers`, else ESTIMATOR_RUNTIME_PACK_TRANSFERS, 1 or 0, else
            the default.
        async_checkpoint: Whether training continues while a checkpoint is written; see
            docs/checkpoints.md. False waits for each write, as TensorFlow does. None
            takes the command's `--async-checkpoint` or `--no-async-checkpoint`, else
            ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT, 1 or 0, else True.
        checkpoint_overhead: Set this instead of an interval: the fraction of the wall
            time that checkpoints may take, such as 0.01. The interval then follows
            their cost, between 10 seconds and half an hour. None takes, if no interval
            is given, the command's `--checkpoint-overhead`, else
            ESTIMATOR_RUNTIME_CHECKPOINT_OVERHEAD.
        keep_best: How many of the best checkpoints to keep, of those that
            `train_and_evaluate` evaluates. They are in the folder `best` of the model
            directory. None takes the command's `--keep-best`, else
            ESTIMATOR_RUNTIME_KEEP_BEST, else 0.
        best_metric: The metric of the evaluation that decides which checkpoints are
            best. None takes the command's `--best-metric`, else
            ESTIMATOR_RUNTIME_BEST_METRIC.
        best_mode: "max" if a higher value is better, "min" if a lower one is. You may
            omit it if the metric's name contains "loss" or "error", which means "min".
            None takes the command's `--best-mode`, else ESTIMATOR_RUNTIME_BEST_MODE.
        reuse_graphs: Whether the Estimator keeps the graph and the session of
            `evaluate`, `predict` and exports for its next call. The results are the
            same, but model_fn is called only once for each mode and structure of
            inputs. "auto" does it for TensorFlow's own Estimators, such as
            DNNClassifier, if no argument of theirs is a function of the program; see
            docs/performance.md. None takes the command's `--reuse-graphs` or
            `--no-reuse-graphs`, else ESTIMATOR_RUNTIME_REUSE_GRAPHS, 1 or 0, else
            "auto".
        progress: How to show progress: "auto", "bar", "plain" or "none". Under the
            command, the default is "auto". None takes the command's `--progress`,
            else ESTIMATOR_RUNTIME_PROGRESS, else "auto" in a notebook whose log
            `install` has quietened, as it does by default, and "none" elsewhere.

    Attributes:
        cluster_spec: `tf.train.ClusterSpec` of all tasks; empty without a cluster.
        task_type: Type of this task: "chief", "master", "worker", "ps", "evaluator";
            "worker" without a cluster.
        task_id: Index of this task among the tasks of its type.
        global_id_in_cluster: Index of this task among all tasks. The chief is 0,
            followed by the workers and the ps. None for an evaluator.
        is_chief: Whether this task saves checkpoints and writes summaries.
        master: Session target: "grpc://" and the task's address, or "" for a task that
            runs alone.
        evaluation_master: Session target for evaluation; "" is this process.
        num_ps_replicas: Number of ps tasks.
        num_worker_replicas: Number of workers, including a chief or master.
        service: TF_CONFIG's `service`, an object, or None.

    Raises:
        ConfigError: (a ValueError) If TF_CONFIG or an argument cannot be used.
        TypeError: If an argument has a type that cannot be compared with its range
            or TF_CONFIG's `service` is not an object.
    """

    @run_config_values.naming_misspelt
    def __init__(
        self,
        model_dir: str | os.PathLike | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: int | None = _USE_DEFAULT,
        save_checkpoints_secs: float | None = _USE_DEFAULT,
        session_config: tf.compat.v1.ConfigProto | None = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: tf.distribute.Strategy | None = None,
        device_fn: Callable | None = None,
        protocol: str | None = None,
        eval_distribute: tf.distribute.Strategy | None = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: int | None = None,
        session_creation_timeout_secs: float | None = 7200,
        checkpoint_save_graph_def: bool = True,
        *,
        loop: str | None = None,
        steps_per_run: int | str | None = None,
        pack_transfers: bool | None = None,
        async_checkpoint: bool | None = None,
        checkpoint_overhead: float | None = None,
        keep_best: int | None = None,
        best_metric: str | None = None,
        best_mode: str | None = None,
        reuse_graphs: bool | str | None = None,
        progress: str | None = None,
    ):
        given = {**locals()}  # all arguments, by name
        options = {name: given[name] for name in OPTIONS}
        # The frozen constructor has its own default object for "not given".
        arguments = {
            name: given[name]
            for name in inspect.signature(StockRunConfig).parameters
            if given[name] is not _USE_DEFAULT
        }
        arguments = run_config_values.unwrapped(arguments)
        run_config_values.check(arguments)
        if checkpoint_overhead is not None:
            _take_interval_of_overhead(arguments, checkpoint_overhead)
        # With a strategy for training, TensorFlow's coordinator reads the task, and a
        # cluster of workers without a chief is valid.
        inside = getattr(experimental_distribute, "train_distribute", None)
        coordinated = bool(train_distribute or inside)
        tf_config = TFConfig.from_environ(
            os.environ,
            check_addresses=not coordinated,
            chief_required=not coordinated,
            task_required=not coordinated,
        )
        folder = run_config_values.resolve_model_dir(model_dir, tf_config.model_dir)
        arguments["model_dir"] = folder
        with run_config_values.errors_of_frozen_class(arguments):
            super().__init__(**arguments)
        self._set_options(options)
        # Not the properties: those of a subclass may read attributes not yet set.
        strategies.adapt(self._train_distribute, self._eval_distribute)

    @property
    def checkpoint_overhead(self) -> float | None:
        """The fraction of the wall time that checkpoints may take, or None.

        An interval other than TensorFlow's default overrides it.
        """
        if self.save_checkpoints_secs != interval.DEFAULT_SECS:
            return None
        return self.training_options.checkpoint_overhead

    def replace(self, **kwargs: Any) -> RunConfig:
        """Return a copy with some properties changed.

        Args:
            **kwargs: New values by name, of the arguments of the constructor.

        Returns:
            A new RunConfig. Setting one of `save_checkpoints_steps` and
            `save_checkpoints_secs` sets the other to None.

        Raises:
            ConfigError: (a ValueError) If a name cannot be replaced, a value cannot
                be used, or both checkpoint intervals are set.
        """
        kwargs = run_config_values.unwrapped(kwargs)
        run_config_values.check(kwargs)
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        overhead = options.get("checkpoint_overhead")
        if overhead is not None:
            _take_interval_of_overhead(kwargs, overhead)
            kwargs["save_checkpoints_secs"] = interval.DEFAULT_SECS
        if kwargs.get("model_dir") is not None:
            kwargs["model_dir"] = os.fspath(kwargs["model_dir"])
        # Not super(): the frozen Estimator calls this with configs of other classes.
        with run_config_values.errors_of_frozen_class(kwargs):
            changed = StockRunConfig.replace(self, **kwargs)
        coordinated = getattr(changed, "_distribute_coordinator_mode", None)
        if kwargs.get("session_config") is not None and not coordinated:
            changed._maybe_overwrite_session_config_for_distributed_training()
        strategies.adapt(changed.train_distribute, changed.eval_distribute)
        if options:
            changed._set_options(options)
        return changed

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # Estimator requires an instance of the class with this name. Instances that
        # were made before this class took the name, and instances of TPU's RunConfig,
        # work as well.
        if cls is RunConfig and issubclass(other, StockRunConfig):
            return True
        return NotImplemented

    def training_session_kwargs(
        self,
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
        chief_only_hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None = None,
    ) -> dict[str, Any]:
        """Return the arguments of `MonitoredTrainingSession` for this config.

        With them, a training loop of your own saves checkpoints, logs and writes
        summaries as an Estimator with this config does:

            stop = tf.compat.v1.train.StopAtStepHook(last_step=10_000)
            arguments = config.training_session_kwargs(hooks=[stop])
            with MonitoredTrainingSession(**arguments) as s:
                while not s.should_stop():
                    s.run(train_op)

        The arguments that TensorFlow's RunConfig does not have, such as `loop`, reach
        such a session only through the environment; a warning names those that do not.

        Args:
            scaffold: `tf.compat.v1.train.Scaffold`, or None for the default one.
                If it has no saver, and the graph neither, one is added that keeps
                checkpoints as this config says.
            hooks: Hooks that run in every process.
            chief_only_hooks: Hooks that run in the chief only.

        Returns:
            A new dict: `master` (session target), `is_chief`, `checkpoint_dir`,
            `scaffold`, `hooks`, `chief_only_hooks`, `save_checkpoint_secs`
            (seconds, or None), `save_checkpoint_steps` (steps, or None),
            `save_summaries_steps` (steps, or None for no summaries), `config`
            (ConfigProto), `log_step_count_steps` (steps, or None), `max_wait_secs`
            (longest wait of a task that is not chief, in seconds) and `save_graph_def`.

        Raises:
            RuntimeError: If called in eager mode, outside of any graph.
        """
        return {
            "master": self.master,
            "is_chief": self.is_chief,
            "checkpoint_dir": self.model_dir,
            "scaffold": _with_saver(self, scaffold),
            "hooks": hooks,
            "chief_only_hooks": chief_only_hooks,
            "save_checkpoint_secs": self.save_checkpoints_secs or None,
            "save_checkpoint_steps": self.save_checkpoints_steps or None,
            "save_summaries_steps": self.save_summary_steps or None,
            "config": self.session_config or frozen.default_session_config(),
            "log_step_count_steps": self.log_step_count_steps,
            "max_wait_secs": self.session_creation_timeout_secs,
            "save_graph_def": self.checkpoint_save_graph_def,
        }

    def _init_distributed_setting_from_environment_var(
        self, tf_config: Mapping[str, Any]
    ) -> None:
        # A job without tasks is left out: the frozen class fails on it in other tasks.
        jobs = tf_config.get("cluster") or {}
        cluster = {job: tasks for job, tasks in jobs.items() if tasks}
        super()._init_distributed_setting_from_environment_var(
            {**tf_config, "cluster": cluster}
        )

    def _maybe_overwrite_session_config_for_distributed_training(self) -> None:
        """Add device filters to the session config of a task in a cluster.

        The frozen class creates a config with filters only if there is no config. With
        a config of the user's, which has none, the session waits for all other workers.
        """
        mine = self.session_config
        super()._maybe_overwrite_session_config_for_distributed_training()
        if mine is None or mine.device_filters or not self._cluster_spec:
            return
        usual = self._get_default_session_config_distributed()
        if usual is not None:
            session_config = copy.deepcopy(mine)
            session_config.device_filters.extend(usual.device_filters)
            self._session_config = session_config


def _take_interval_of_overhead(arguments: dict[str, Any], overhead: Any) -> None:
    """Remove the intervals of checkpoints, in whose place an overhead is given.

    Raises:
        ConfigError: If the overhead is out of range, or an interval is given too.
    """
    OPTIONS["checkpoint_overhead"].check(overhead, "RunConfig: checkpoint_overhead")
    for name in ("save_checkpoints_steps", "save_checkpoints_secs"):
        if arguments.pop(name, None) is not None:
            raise ConfigError(
                f"RunConfig: checkpoint_overhead is {overhead!r}, but {name} is given "
                "too; leave one of them out"
            )


def _with_saver(
    config: Any, scaffold: tf.compat.v1.train.Scaffold | None
) -> tf.compat.v1.train.Scaffold | None:
    given = scaffold is not None and scaffold.saver is not None
    if given or tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS):
        return scaffold
    if tf.executing_eagerly():
        raise RuntimeError(
            "no graph to save; call this inside `with tf.Graph().as_default():`"
        )
    saver = tf.compat.v1.train.Saver(
        sharded=True,
        max_to_keep=config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        defer_build=True,  # the session builds it once all variables exist
        save_relative_paths=True,
    )
    return tf.compat.v1.train.Scaffold(saver=saver, copy_from_scaffold=scaffold)
