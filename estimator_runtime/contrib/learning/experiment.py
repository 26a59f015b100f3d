"""`Experiment`, `learn_runner` and export strategies of `tf.contrib.learn`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from estimator_runtime.config.role import TaskType
from estimator_runtime.contrib.learning.estimator import replace_monitors_with_hooks
from estimator_runtime.distributed.train_and_evaluate import train_and_evaluate
from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.patching.frozen import Exporter

__all__ = [
    "Experiment",
    "ExportStrategy",
    "InputFnOps",
    "build_parsing_serving_input_fn",
    "make_export_strategy",
    "run",
]

tf1 = tf.compat.v1


class Experiment:
    """An Estimator with all that its training and evaluation need.

    In a cluster, each task does its part in `tf.estimator.train_and_evaluate`,
    whichever of `train`, `train_and_evaluate` and `run_std_server` it calls. Evaluation
    then takes an evaluator task, which the RunConfig of `tf.contrib.learn` refuses, as
    in TensorFlow 1.15; give that of `tf.estimator`.

    Args:
        estimator: A `tf.estimator.Estimator`.
        train_input_fn: Returns features and labels of the training.
        eval_input_fn: Returns features and labels of the evaluation.
        eval_metrics: `MetricSpec`s by name, for an Estimator of `tf.contrib.learn`.
        train_steps: Global step at which the training ends; None for no end.
        eval_steps: Batches of an evaluation; None for all.
        train_monitors: SessionRunHooks of the training.
        eval_hooks: SessionRunHooks of the evaluation.
        local_eval_frequency: Former name of `min_eval_frequency`.
        eval_delay_secs: Seconds before an evaluator task starts.
        continuous_eval_throttle_secs: Seconds between evaluations of that task.
        min_eval_frequency: Steps between evaluations of a training without a cluster,
            each after a checkpoint; None for after each checkpoint, 0 for only at the
            end.
        delay_workers_by_global_step: Has no effect: workers start by
            `tf.estimator.RunConfig`.
        export_strategies: One or several `ExportStrategy`, for after the last
            evaluation; in a cluster after each.
        train_steps_per_iteration: Steps between evaluations of
            `continuous_train_and_eval`; None for until `train_steps`.
        checkpoint_and_export: Has no effect beside what is said above.
        saving_listeners: `CheckpointSaverListener`s of the training.
        check_interval_secs: Has no effect.

    Raises:
        ConfigTypeError: (a TypeError) If the estimator is none of `tf.estimator`.
        ConfigError: (a ValueError) If it takes no `eval_metrics`.
    """

    def __init__(
        self,
        estimator: Any,
        train_input_fn: Callable[..., Any],
        eval_input_fn: Callable[..., Any],
        eval_metrics: Mapping[str, Any] | None = None,
        train_steps: int | None = None,
        eval_steps: int | None = 100,
        train_monitors: Sequence[Any] | None = None,
        eval_hooks: Sequence[Any] | None = None,
        local_eval_frequency: int | None = None,
        eval_delay_secs: float = 120,
        continuous_eval_throttle_secs: float = 60,
        min_eval_frequency: int | None = None,
        delay_workers_by_global_step: bool = False,
        export_strategies: ExportStrategy | Sequence[ExportStrategy] | None = None,
        train_steps_per_iteration: int | None = None,
        checkpoint_and_export: bool = False,
        saving_listeners: Sequence[Any] | None = None,
        check_interval_secs: float = 5,
    ) -> None:
        if not isinstance(estimator, tf1.estimator.Estimator):
            raise ConfigTypeError(
                f"Experiment: estimator is {estimator!r}; give a tf.estimator.Estimator"
            )
        parameters = inspect.signature(estimator.evaluate).parameters
        if eval_metrics and "metrics" not in parameters:
            raise ConfigError(
                "Experiment: eval_metrics is given, but a tf.estimator.Estimator has "
                "its metrics in its model_fn; use tf.estimator.add_metrics, and None"
            )
        self._estimator = estimator
        self._train_input_fn = train_input_fn
        self._eval_input_fn = eval_input_fn
        self._eval_metrics = eval_metrics
        self._train_steps = train_steps
        self._eval_steps = eval_steps
        self._train_hooks = replace_monitors_with_hooks(train_monitors, estimator)
        self._eval_hooks = list(eval_hooks or [])
        self._min_eval_frequency = (
            local_eval_frequency if min_eval_frequency is None else min_eval_frequency
        )
        self._eval_delay_secs = eval_delay_secs
        self._eval_throttle_secs = continuous_eval_throttle_secs
        self._steps_per_iteration = train_steps_per_iteration
        self._saving_listeners = list(saving_listeners or [])
        self.reset_export_strategies(export_strategies)

    @property
    def estimator(self) -> Any:
        """The Estimator."""
        return self._estimator

    @property
    def eval_metrics(self) -> Mapping[str, Any] | None:
        """The metrics given."""
        return self._eval_metrics

    @property
    def train_steps(self) -> int | None:
        """Global step at which the training ends."""
        return self._train_steps

    @property
    def eval_steps(self) -> int | None:
        """Batches of an evaluation."""
        return self._eval_steps

    def reset_export_strategies(
        self, new_export_strategies: ExportStrategy | Sequence[ExportStrategy] | None
    ) -> list[ExportStrategy]:
        """Use other export strategies from now on, and return the former ones."""
        former = getattr(self, "_strategies", [])
        new = new_export_strategies or []
        self._strategies = [new] if isinstance(new, ExportStrategy) else list(new)
        return former

    def extend_train_hooks(self, additional_hooks: Sequence[Any]) -> None:
        """Add SessionRunHooks to those of the training."""
        self._train_hooks.extend(additional_hooks)

    def train(self, delay_secs: float | None = None) -> Any:
        """Train, and evaluate nothing; `delay_secs` has no effect.

        Returns:
            The Estimator; None in a cluster.
        """
        if not self._has_cluster():
            return self._train()
        self._train_in_cluster()
        return None

    def evaluate(
        self, delay_secs: float | None = None, name: str | None = None
    ) -> dict[str, Any]:
        """Evaluate the newest checkpoint, and return its metrics.

        Args:
            delay_secs: Has no effect.
            name: Name of this evaluation, for its folder of summaries.
        """
        return self._evaluate(self._eval_input_fn, name)

    def train_and_evaluate(self) -> tuple[dict[str, Any], list[Any]] | None:
        """Train and evaluate alternately.

        Returns:
            The metrics of the last evaluation, and the paths of what was exported
            after it; None in a cluster.
        """
        if self._has_cluster():
            self._train_in_cluster()
            return None
        frequency = self._min_eval_frequency
        listeners = []
        if frequency is None or frequency > 0:
            listeners.append(_EvaluateAfterSave(self._evaluate_in_turn, frequency or 1))
        self._train(listeners)
        metrics = self._evaluate(self._eval_input_fn)
        return metrics, self._export(metrics)

    def local_run(self) -> tuple[dict[str, Any], list[Any]] | None:
        """Same as `train_and_evaluate`."""
        return self.train_and_evaluate()

    def continuous_train_and_eval(
        self, continuous_eval_predicate_fn: Callable[[Any], bool] | None = None
    ) -> tuple[dict[str, Any] | None, list[Any]]:
        """Train some steps, evaluate, and so on, in this process.

        Args:
            continuous_eval_predicate_fn: Takes the metrics of the last evaluation (None
                before the first) and returns whether to go on.

        Returns:
            The metrics of the last evaluation, and what was exported.
        """
        metrics: dict[str, Any] | None = None
        exported: list[Any] = []
        going_on = continuous_eval_predicate_fn or (lambda _metrics: True)
        while going_on(metrics):
            step = int(metrics["global_step"]) if metrics else self._saved_step()
            end = self._train_steps
            if end is not None and step >= end:
                break
            if self._steps_per_iteration is not None:
                each = step + self._steps_per_iteration
                end = each if end is None else min(each, end)
            self._train(max_steps=end)
            metrics = self._evaluate(self._eval_input_fn)
            exported = self._export(metrics)
            if int(metrics["global_step"]) <= step:
                break  # The input has ended.
        return metrics, exported

    def test(self) -> tuple[dict[str, Any], list[Any]]:
        """Train one step, evaluate one batch, and export."""
        self._estimator.train(self._train_input_fn, self._train_hooks, steps=1)
        metrics = self._evaluate(self._eval_input_fn, steps=1)
        return metrics, self._export(metrics)

    def run_std_server(self) -> None:
        """Serve the variables of a cluster, as a ps does.

        Raises:
            ConfigError: If TF_CONFIG names no cluster.
        """
        if not self._has_cluster():
            raise ConfigError(
                "Experiment.run_std_server: TF_CONFIG names no cluster; start the job "
                "with estimator-runtime run --ps 1"
            )
        self._train_in_cluster()

    def _has_cluster(self) -> bool:
        return bool(self._estimator.config.cluster_spec.as_dict())

    def _saved_step(self) -> int:
        path = self._estimator.latest_checkpoint()
        if path is None:
            return 0
        return int(tf.train.load_variable(path, tf1.GraphKeys.GLOBAL_STEP))

    def _train(
        self, listeners: Sequence[Any] = (), max_steps: int | None = None
    ) -> Any:
        return self._estimator.train(
            self._train_input_fn,
            hooks=self._train_hooks,
            max_steps=self._train_steps if max_steps is None else max_steps,
            saving_listeners=[*self._saving_listeners, *listeners],
        )

    def _evaluate(
        self,
        input_fn: Callable[..., Any],
        name: str | None = None,
        steps: int | None = None,
    ) -> dict[str, Any]:
        metrics = {"metrics": self._eval_metrics} if self._eval_metrics else {}
        return self._estimator.evaluate(
            input_fn=input_fn,
            steps=self._eval_steps if steps is None else steps,
            hooks=self._eval_hooks,
            name=name,
            **metrics,
        )

    def _evaluate_in_turn(self) -> None:
        self._evaluate(self._eval_input_fn)

    def _export(self, metrics: dict[str, Any]) -> list[Any]:
        path = self._estimator.latest_checkpoint()
        return [
            strategy.export(
                self._estimator, self._export_folder(strategy.name), path, metrics
            )
            for strategy in self._strategies
        ]

    def _export_folder(self, name: str) -> str:
        return os.path.join(tf.compat.as_str(self._estimator.model_dir), "export", name)

    def _train_in_cluster(self) -> None:
        if self._eval_metrics:
            raise ConfigError(
                "Experiment: eval_metrics in a cluster are not supported; use "
                "tf.estimator.add_metrics, and None"
            )
        train_and_evaluate(
            self._estimator,
            tf.estimator.TrainSpec(
                self._train_input_fn,
                max_steps=self._train_steps,
                hooks=self._train_hooks,
                saving_listeners=self._saving_listeners,
            ),
            tf.estimator.EvalSpec(
                self._eval_input_fn,
                steps=self._eval_steps,
                hooks=self._eval_hooks,
                exporters=[_StrategyExporter(each) for each in self._strategies],
                start_delay_secs=self._eval_delay_secs,
                throttle_secs=self._eval_throttle_secs,
            ),
        )


class _EvaluateAfterSave(tf.compat.v1.train.CheckpointSaverListener):
    """Evaluates after a checkpoint, if enough steps have passed since the last time."""

    def __init__(self, evaluate: Callable[[], None], steps: int) -> None:
        self._evaluate = evaluate
        self._steps = steps
        self._last: int | None = None

    def after_save(self, session: Any, global_step_value: int) -> None:
        if self._last is None:
            # The checkpoint of the first step has learnt nothing yet.
            self._last = global_step_value
        elif global_step_value - self._last >= self._steps:
            self._evaluate()
            self._last = global_step_value


class ExportStrategy(NamedTuple):
    """A way to export a trained model.

    Attributes:
        name: Name of the folder, within `export` of the model directory.
        export_fn: A function of (estimator, export_dir_base), and optionally of
            checkpoint_path, eval_result and strip_default_attrs, which are found by
            name. It exports, and returns the path.
        strip_default_attrs: Passed to `export_fn`.
    """

    name: str
    export_fn: Callable[..., Any]
    strip_default_attrs: bool | None = None

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str | None = None,
        eval_result: Mapping[str, Any] | None = None,
    ) -> Any:
        """Export a checkpoint (None for the newest), and return its path."""
        given = {
            "checkpoint_path": checkpoint_path,
            "eval_result": eval_result,
            "strip_default_attrs": self.strip_default_attrs,
        }
        taken = given.keys() & inspect.signature(self.export_fn).parameters
        options = {name: given[name] for name in taken}
        return self.export_fn(estimator, export_path, **options)


class _StrategyExporter(Exporter):
    """An ExportStrategy as `tf.estimator.train_and_evaluate` calls it."""

    def __init__(self, strategy: ExportStrategy) -> None:
        self._strategy = strategy

    @property
    def name(self) -> str:
        return self._strategy.name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        return self._strategy.export(
            estimator, export_path, checkpoint_path, eval_result
        )


class InputFnOps(NamedTuple):
    """What a serving input function returns: features, labels (None) and inputs."""

    features: Any
    labels: Any
    default_inputs: Any


def build_parsing_serving_input_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """Return a serving input function that parses `tf.train.Example`s.

    Args:
        feature_spec: Features to parse, by name.
        default_batch_size: Number of examples per call; None for any.
    """
    make = tf.estimator.export.build_parsing_serving_input_receiver_fn(
        feature_spec, default_batch_size
    )

    def serving_input_fn() -> InputFnOps:
        receiver = make()
        return InputFnOps(receiver.features, None, receiver.receiver_tensors)

    return serving_input_fn


def make_export_strategy(
    serving_input_fn: Callable[[], Any],
    default_output_alternative_key: None = None,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """Return a strategy that exports SavedModels into the folder "Servo".

    Args:
        serving_input_fn: Returns `InputFnOps`, or what a serving_input_receiver_fn of
            `tf.estimator` returns.
        default_output_alternative_key: Must be None: the model_fn chooses.
        assets_extra: Files to add, by their path within the folder of the assets.
        as_text: Whether to write the SavedModel as text.
        exports_to_keep: Number of newest exports to keep; None keeps all.
        strip_default_attrs: Has no effect: defaults are always stripped.

    Raises:
        ConfigError: (a ValueError) If an output alternative is given.
    """
    if default_output_alternative_key is not None:
        raise ConfigError(
            "make_export_strategy: default_output_alternative_key is "
            f"{default_output_alternative_key!r}; leave it out, and name the default "
            "output in the export_outputs of the model_fn"
        )

    def receiver_fn() -> Any:
        given = serving_input_fn()
        if not isinstance(given, InputFnOps):
            return given
        export = tf.estimator.export
        is_tensor = not isinstance(given.features, Mapping)
        # The other makes a dict of a tensor, which model_fn does not expect.
        receiver = (
            export.TensorServingInputReceiver
            if is_tensor
            else export.ServingInputReceiver
        )
        return receiver(given.features, given.default_inputs)

    def export_fn(
        estimator: Any, export_dir_base: str, checkpoint_path: str | None = None
    ) -> Any:
        path = estimator.export_saved_model(
            export_dir_base,
            receiver_fn,
            assets_extra=assets_extra,
            as_text=as_text,
            checkpoint_path=checkpoint_path,
        )
        _keep_newest(export_dir_base, exports_to_keep)
        return path

    return ExportStrategy("Servo", export_fn, strip_default_attrs)


def _keep_newest(folder: str, count: int | None) -> None:
    """Delete all exports in a folder, which are named by their time, but the newest."""
    if count is None:
        return
    # Object stores list a folder with a slash at the end.
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    exports = sorted((name for name in names if name.isdigit()), key=int)
    for name in exports[: max(len(exports) - count, 0)]:
        tf.io.gfile.rmtree(os.path.join(folder, name))


def run(
    experiment_fn: Callable[..., Experiment],
    output_dir: str | None = None,
    schedule: str | None = None,
    run_config: Any = None,
    hparams: Any = None,
) -> Any:
    """Make an Experiment and call one of its methods: `learn_runner.run`.

    Args:
        experiment_fn: A function of `output_dir`; or, if `run_config` is given, of
            (run_config, hparams).
        output_dir: The model directory. Give this or `run_config`.
        schedule: The method to call. None follows TF_CONFIG: "train_and_evaluate"
            without a cluster and for a master or evaluator, "run_std_server" for a ps,
            and "train" for others.
        run_config: A RunConfig with a model_dir.
        hparams: Hyperparameters for `experiment_fn`.

    Returns:
        What the method returns.

    Raises:
        ConfigError: (a ValueError) If both or none of `output_dir` and `run_config` are
            given, hparams without run_config, or the schedule is unknown.
        ConfigTypeError: (a TypeError) If `experiment_fn` returns something else.
    """
    if (output_dir is None) == (run_config is None) or (
        hparams is not None and run_config is None
    ):
        raise ConfigError(
            f"learn_runner.run: output_dir is {output_dir!r} and run_config "
            f"{run_config!r}; give one of them, and hparams only with run_config"
        )
    if run_config is None:
        experiment = experiment_fn(output_dir=output_dir)
    else:
        experiment = experiment_fn(run_config, hparams)
    if not isinstance(experiment, Experiment):
        raise ConfigTypeError(
            f"learn_runner.run: experiment_fn returned {experiment!r}, no Experiment"
        )
    name = schedule or _schedule(experiment.estimator.config)
    method = getattr(experiment, name, None)
    if name.startswith("_") or not callable(method):
        raise ConfigError(
            f"learn_runner.run: schedule is {name!r}, which Experiment does not have; "
            'use "train", "evaluate" or "train_and_evaluate"'
        )
    return method()


def _schedule(config: Any) -> str:
    """Return the schedule of this task."""
    if not config.cluster_spec.as_dict() or config.task_type == TaskType.MASTER:
        return "train_and_evaluate"
    if config.task_type == TaskType.PS:
        return "run_std_server"
    return "train_and_evaluate" if config.task_type == TaskType.EVALUATOR else "train"
