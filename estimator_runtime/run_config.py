"""`tf.estimator.RunConfig`: how an Estimator trains, and where."""

import abc
import copy
import os

import tensorflow as tf

from estimator_runtime import settings
from estimator_runtime.compat import seam, strategies
from estimator_runtime.compat.frozen import StockRunConfig, default_session_config
from estimator_runtime.errors import ConfigError
from estimator_runtime.options import TrainingOptions, check_steps_per_run
from estimator_runtime.tf_config import TFConfig

_USE_DEFAULT = object()


@seam.replaces("tensorflow_estimator.python.estimator.run_config")
class RunConfig(StockRunConfig, metaclass=abc.ABCMeta):
    """Configuration of an Estimator's training, evaluation and prediction.

    A subclass of the frozen package's RunConfig that every Estimator accepts: same
    arguments in the same order, same defaults, properties and `replace()`. What it
    adds: TF_CONFIG is checked before anything is made of it, values of the wrong
    type or range are named together with what would do, and a `session_config` of
    your own keeps the cluster's device filters.

    Cluster properties (`cluster_spec`, `task_type`, `task_id`, `master`,
    `is_chief`, `num_ps_replicas`, ...) come from TF_CONFIG.

    Args:
        model_dir: Folder for checkpoints, summaries and the graph; str or
            `os.PathLike`. None takes TF_CONFIG's `model_dir`, or else leaves the
            choice to the Estimator. If both are given they must be equal.
        tf_random_seed: Seed of every random op and initializer of the model, so
            that two runs are equal; None draws new ones.
        save_summary_steps: Steps between summaries; 0 for none.
        save_checkpoints_steps: Steps between checkpoints. Give this or
            `save_checkpoints_secs`.
        save_checkpoints_secs: Seconds between checkpoints: 600 if neither is
            given; none are saved if both are None.
        session_config: `tf.compat.v1.ConfigProto` of the training session, or None
            for TensorFlow's usual one. In a cluster it gets the device filters
            that keep chief and workers from waiting for each other, unless it sets
            some.
        keep_checkpoint_max: Newest checkpoints to keep; None or 0 keeps all.
        keep_checkpoint_every_n_hours: Beside those, keep one every so many hours.
        log_step_count_steps: Steps between log lines of loss and steps/sec; None
            for none.
        train_distribute: `tf.distribute.Strategy` for training, or None.
        device_fn: Callable from an op to its device, or None for
            `replica_device_setter` where there are parameter servers.
        protocol: None, "grpc" or "grpc+verbs": what servers speak.
        eval_distribute: `tf.distribute.Strategy` for evaluation, or None.
        experimental_distribute: `DistributeConfig` that holds the strategies
            instead of the two arguments above.
        experimental_max_worker_delay_secs: Longest start delay of a worker, in
            seconds (int); None for TensorFlow's own, up to 60.
        session_creation_timeout_secs: Longest wait for a session, in seconds.
        checkpoint_save_graph_def: Whether the graph is written beside checkpoints.
        steps_per_run: Training steps in one call of the session, with the results of
            single steps: 1 or more, or "auto"; hooks act at the same steps, but a
            stop request waits for the end of a run. None takes the command's
            `--steps-per-run`, else ESTIMATOR_RUNTIME_STEPS_PER_RUN, else 1.

    Raises:
        ConfigError: (a ValueError) If TF_CONFIG or an argument cannot be used.
        TypeError: If an argument has a type that cannot be compared with its range
            or TF_CONFIG's `service` is not an object.
    """

    _steps_per_run: int | str | None = None

    def __init__(
        self,
        model_dir=None,
        tf_random_seed=None,
        save_summary_steps=100,
        save_checkpoints_steps=_USE_DEFAULT,
        save_checkpoints_secs=_USE_DEFAULT,
        session_config=None,
        keep_checkpoint_max=5,
        keep_checkpoint_every_n_hours=10000,
        log_step_count_steps=100,
        train_distribute=None,
        device_fn=None,
        protocol=None,
        eval_distribute=None,
        experimental_distribute=None,
        experimental_max_worker_delay_secs=None,
        session_creation_timeout_secs=7200,
        checkpoint_save_graph_def=True,
        *,
        steps_per_run=None,
    ):
        arguments = {
            "model_dir": model_dir,
            "tf_random_seed": tf_random_seed,
            "save_summary_steps": save_summary_steps,
            "session_config": session_config,
            "keep_checkpoint_max": keep_checkpoint_max,
            "keep_checkpoint_every_n_hours": keep_checkpoint_every_n_hours,
            "log_step_count_steps": log_step_count_steps,
            "train_distribute": train_distribute,
            "device_fn": device_fn,
            "protocol": protocol,
            "eval_distribute": eval_distribute,
            "experimental_distribute": experimental_distribute,
            "experimental_max_worker_delay_secs": experimental_max_worker_delay_secs,
            "session_creation_timeout_secs": session_creation_timeout_secs,
            "checkpoint_save_graph_def": checkpoint_save_graph_def,
        }
        # The frozen constructor has its own mark for "not given".
        if save_checkpoints_steps is not _USE_DEFAULT:
            arguments["save_checkpoints_steps"] = save_checkpoints_steps
        if save_checkpoints_secs is not _USE_DEFAULT:
            arguments["save_checkpoints_secs"] = save_checkpoints_secs
        settings.check(arguments)
        # With a strategy, TensorFlow's coordinator reads the task, and a cluster of
        # workers without a chief is right.
        coordinated = any((train_distribute, eval_distribute, experimental_distribute))
        _check_tf_config(model_dir, coordinated=coordinated)
        with settings.errors_of_frozen_class():
            super().__init__(**arguments)
        self._set_steps_per_run(steps_per_run)
        strategies.adapt(self.train_distribute, self.eval_distribute)

    @property
    def training_options(self):
        """`TrainingOptions` of the sessions that train with this config."""
        if self._steps_per_run is None:
            return TrainingOptions.from_environ()
        return TrainingOptions(steps_per_run=self._steps_per_run)

    @property
    def steps_per_run(self):
        """Training steps in one call of the session: 1 or more, or "auto"."""
        return self.training_options.steps_per_run

    def _set_steps_per_run(self, value):
        if value is not None:
            check_steps_per_run(value, "RunConfig: steps_per_run")
        self._steps_per_run = value

    def replace(self, **kwargs):
        """Give a copy with some properties changed.

        Args:
            **kwargs: New values by name, of the arguments of the constructor.

        Returns:
            A new RunConfig. Setting one of `save_checkpoints_steps` and
            `save_checkpoints_secs` sets the other to None.

        Raises:
            ConfigError: (a ValueError) If a name cannot be replaced, a value cannot
                be used, or both checkpoint intervals are set.
        """
        settings.check(kwargs)
        has_steps_per_run = "steps_per_run" in kwargs
        steps_per_run = kwargs.pop("steps_per_run", None)
        if kwargs.get("model_dir") is not None:
            kwargs["model_dir"] = os.fspath(kwargs["model_dir"])
        # Not super(): the frozen Estimator calls this with configs of other classes.
        with settings.errors_of_frozen_class():
            changed = StockRunConfig.replace(self, **kwargs)
        coordinated = getattr(changed, "_distribute_coordinator_mode", None)
        if kwargs.get("session_config") is not None and not coordinated:
            changed._maybe_overwrite_session_config_for_distributed_training()
        strategies.adapt(changed.train_distribute, changed.eval_distribute)
        if has_steps_per_run:
            changed._set_steps_per_run(steps_per_run)
        return changed

    @classmethod
    def __subclasshook__(cls, other):
        # Estimator insists on an instance of the class under this name. Instances
        # made before this class took the name, and of TPU's RunConfig, are as good.
        if cls is RunConfig and issubclass(other, StockRunConfig):
            return True
        return NotImplemented

    def training_session_kwargs(self, scaffold=None, hooks=None, chief_only_hooks=None):
        """The arguments of `MonitoredTrainingSession` that this config stands for.

        With them a training loop of your own checkpoints, logs and writes summaries
        as an Estimator with this config does:

            with MonitoredTrainingSession(**config.training_session_kwargs()) as s:
                while not s.should_stop():
                    s.run(train_op)

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
            (seconds until session creation fails) and `save_graph_def`.

        Raises:
            RuntimeError: If called in eager mode, outside of any graph.
        """
        return {
            "master": self.master,
            "is_chief": self.is_chief,
            "checkpoint_dir": self.model_dir,
            "scaffold": self._with_saver(scaffold),
            "hooks": hooks,
            "chief_only_hooks": chief_only_hooks,
            "save_checkpoint_secs": self.save_checkpoints_secs or None,
            "save_checkpoint_steps": self.save_checkpoints_steps or None,
            "save_summaries_steps": self.save_summary_steps or None,
            "config": self.session_config or default_session_config(),
            "log_step_count_steps": self.log_step_count_steps,
            "max_wait_secs": self.session_creation_timeout_secs,
            "save_graph_def": self.checkpoint_save_graph_def,
        }

    def _with_saver(self, scaffold):
        given = scaffold is not None and scaffold.saver is not None
        if given or tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS):
            return scaffold
        if tf.executing_eagerly():
            raise RuntimeError(
                "no graph to save; call this inside `with tf.Graph().as_default():`"
            )
        saver = tf.compat.v1.train.Saver(
            sharded=True,
            max_to_keep=self.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=self.keep_checkpoint_every_n_hours,
            defer_build=True,  # the session builds it, when all variables exist
            save_relative_paths=True,
        )
        return tf.compat.v1.train.Scaffold(saver=saver, copy_from_scaffold=scaffold)

    def _maybe_overwrite_session_config_for_distributed_training(self):
        """Give the session config of a cluster task its device filters.

        The frozen class makes a config with filters when there is none, and leaves
        one of the user's without: its session then waits for every other worker.
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


def _check_tf_config(model_dir, *, coordinated):
    """Refuse a TF_CONFIG that cannot be used, or names another model_dir."""
    theirs = TFConfig.from_environ(
        os.environ,
        check_addresses=not coordinated,
        chief_required=not coordinated,
        task_required=not coordinated,
    ).model_dir
    if None not in (model_dir, theirs) and os.fspath(model_dir) != theirs:
        raise ConfigError(
            f"RunConfig: model_dir is {os.fspath(model_dir)!r}, but TF_CONFIG has "
            f"{theirs!r}. `model_dir` provided in RunConfig construct, if set, must "
            "have the same value as the model_dir in TF_CONFIG. Leave one of them out"
        )
