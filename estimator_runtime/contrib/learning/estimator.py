"""`tf.contrib.learn.Estimator`: model functions that return ModelFnOps or tuples."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.patching.frozen import ModeKeys, StockEstimator

__all__ = [
    "LearnEstimator",
    "LearnModeKeys",
    "MetricSpec",
    "ModelFnOps",
    "ProblemType",
    "replace_monitors_with_hooks",
]

tf1 = tf.compat.v1
# What the parameters of a metric are called, and what each takes.
_ROLES = {
    name: role
    for role, names in (
        ("predictions", ("prediction", "predictions")),
        ("labels", ("label", "labels", "target", "targets")),
        ("weights", ("weight", "weights")),
    )
    for name in names
}
_SERVING = tf1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class LearnModeKeys(ModeKeys):
    """`tf.estimator.ModeKeys`, whose PREDICT was INFER in `tf.contrib.learn`."""

    INFER = ModeKeys.PREDICT


class ProblemType(enum.IntEnum):
    """The kind of an output, in the `output_alternatives` of ModelFnOps."""

    UNSPECIFIED = 0
    CLASSIFICATION = 1
    LINEAR_REGRESSION = 2
    LOGISTIC_REGRESSION = 3


class ModelFnOps(NamedTuple):
    """What a model function returns; see `tf.estimator.EstimatorSpec` for the fields.

    `output_alternatives` is a dict from the name of an output to a pair of its
    ProblemType, or None, and a dict of tensors. `tf.estimator` exports each as a
    prediction.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    output_alternatives: Mapping[str, tuple[Any, Mapping[str, Any]]] | None = None
    training_chief_hooks: Sequence[Any] | None = None
    training_hooks: Sequence[Any] | None = None
    scaffold: Any = None

    def estimator_spec(
        self, default_serving_output_alternative_key: str | None = None
    ) -> tf.estimator.EstimatorSpec:
        """Return the equal `tf.estimator.EstimatorSpec`.

        Args:
            default_serving_output_alternative_key: The output alternative that a server
                gives by default; None if there is only one.

        Raises:
            ConfigError: If there are several output alternatives and none is chosen,
                or the one chosen does not exist.
        """
        outputs: dict[str, Any] | None = None
        if self.mode == ModeKeys.PREDICT:
            outputs = self._export_outputs(default_serving_output_alternative_key)
        return tf.estimator.EstimatorSpec(
            self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=dict(self.eval_metric_ops or {}),
            export_outputs=outputs,
            training_chief_hooks=self.training_chief_hooks,
            training_hooks=self.training_hooks,
            scaffold=self.scaffold,
        )

    def _export_outputs(self, default: str | None) -> dict[str, Any] | None:
        alternatives = self.output_alternatives
        if not alternatives:
            return None  # TensorFlow exports the predictions themselves.
        if default is None and len(alternatives) == 1:
            (default,) = alternatives
        if default is None or default not in alternatives:
            raise ConfigError(
                f"ModelFnOps: the default output is {default!r}, but the "
                f"output_alternatives are {', '.join(map(repr, alternatives))}; "
                "choose one of them"
            )
        outputs = {
            key: tf.estimator.export.PredictOutput(dict(tensors))
            for key, (_, tensors) in alternatives.items()
            if key is not None
        }
        _, tensors = alternatives[default]
        outputs[_SERVING] = tf.estimator.export.PredictOutput(dict(tensors))
        return outputs


class MetricSpec:
    """A metric for `LearnEstimator.evaluate`.

    Args:
        metric_fn: A function of predictions and labels, and weights if `weight_key` is
            given, such as those of `tf.contrib.metrics`. It returns a pair of a value
            and an update op. Its parameters are found by name, as "labels" or
            "targets"; else they are given in that order.
        prediction_key: The prediction to take, if they are a dict of several.
        label_key: The label to take, if they are a dict of several.
        weight_key: The feature that holds the weights, or None.
    """

    def __init__(
        self,
        metric_fn: Callable[..., Any],
        prediction_key: str | None = None,
        label_key: str | None = None,
        weight_key: str | None = None,
    ) -> None:
        self.metric_fn = metric_fn
        self.prediction_key = prediction_key
        self.label_key = label_key
        self.weight_key = weight_key

    def create_metric_ops(self, inputs: Any, labels: Any, predictions: Any) -> Any:
        """Return the metric of a batch: `inputs` are the features."""
        given = {
            "predictions": _chosen(predictions, self.prediction_key, "prediction_key"),
            "labels": _chosen(labels, self.label_key, "label_key"),
        }
        if self.weight_key is not None:
            given["weights"] = inputs[self.weight_key]
        parameters = list(inspect.signature(self.metric_fn).parameters)
        named = {_ROLES[each]: each for each in parameters if each in _ROLES}
        if set(given) <= set(named):
            return self.metric_fn(**{named[role]: x for role, x in given.items()})
        return self.metric_fn(*given.values())


class LearnEstimator(StockEstimator):
    """`tf.contrib.learn.Estimator`, as a `tf.estimator.Estimator`.

    All that `tf.estimator.Estimator` has works too: `train`, `export_savedmodel` and
    `train_and_evaluate`. The arguments x, y and batch_size of TensorFlow 1 are gone
    (`tf.estimator.inputs.numpy_input_fn` makes an input_fn of arrays).

    Args:
        model_fn: A function of (features, labels) that may also have the parameters
            mode, params, config and model_dir. It returns `ModelFnOps`, a
            `tf.estimator.EstimatorSpec`, or a tuple (predictions, loss, train_op).
        model_dir: The folder for checkpoints and summaries.
        config: A RunConfig, also that of `tf.contrib.learn`.
        params: Hyperparameters for model_fn: a dict or `HParams`.
        feature_engineering_fn: A function of (features, labels), and optionally params,
            that returns those for model_fn; or None.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: Any = None,
        params: Any = None,
        feature_engineering_fn: Callable[..., Any] | None = None,
    ) -> None:
        engineer = feature_engineering_fn
        self._learn_metrics: Mapping[str, MetricSpec] = {}

        def converted(
            features: Any, labels: Any, mode: str, config: Any
        ) -> tf.estimator.EstimatorSpec:
            if engineer is not None:
                options = _accepted(engineer, {"params": params})
                features, labels = engineer(features, labels, **options)
            # The caller's objects, not the copies that tf.estimator makes.
            given = {
                "mode": mode,
                "params": params,
                "config": config,
                "model_dir": self.model_dir,
            }
            ops = model_fn(features, labels, **_accepted(model_fn, given))
            spec = _spec(ops, mode)
            if mode != ModeKeys.EVAL or not self._learn_metrics:
                return spec
            metrics = dict(spec.eval_metric_ops)
            for name, metric in self._learn_metrics.items():
                metrics[name] = metric.create_metric_ops(
                    features, labels, spec.predictions
                )
            return spec._replace(eval_metric_ops=metrics)

        super().__init__(converted, model_dir=model_dir, config=config)
        # Not a copy: a reused graph is built again once the program has changed them.
        if isinstance(params, dict):
            self._params = params
        elif params is not None:
            self._params = getattr(params, "__dict__", {"params": params})

    def _assert_members_are_not_overridden(self) -> None:
        """Allow the overrides below, which TensorFlow checks for."""

    def fit(
        self,
        x: None = None,
        y: None = None,
        input_fn: Callable[..., Any] | None = None,
        steps: int | None = None,
        batch_size: None = None,
        monitors: Sequence[Any] | None = None,
        max_steps: int | None = None,
    ) -> LearnEstimator:
        """Train, as `tf.estimator.Estimator.train` does; `monitors` are hooks.

        Raises:
            ConfigTypeError: (a TypeError) If x, y or batch_size is given, input_fn is
                not, or a monitor is no SessionRunHook.
        """
        self._check_inputs("fit", x, y, batch_size, input_fn)
        hooks = replace_monitors_with_hooks(monitors, self)
        self.train(input_fn, hooks=hooks, steps=steps, max_steps=max_steps)
        return self

    def evaluate(
        self,
        x: Any = None,
        y: None = None,
        input_fn: Callable[..., Any] | None = None,
        feed_fn: None = None,
        batch_size: None = None,
        steps: int | None = None,
        metrics: Mapping[str, MetricSpec] | None = None,
        name: str | None = None,
        checkpoint_path: str | None = None,
        hooks: Sequence[Any] | None = None,
        log_progress: bool = True,
    ) -> dict[str, Any]:
        """Evaluate, as `tf.estimator.Estimator.evaluate` does.

        Args:
            x: Must be None, or input_fn as the only positional argument.
            y: Must be None.
            input_fn: A function that returns features and labels.
            feed_fn: Must be None.
            batch_size: Must be None.
            steps: Number of batches; None for all.
            metrics: `MetricSpec`s, by the name that their value gets in the result.
            name: Name of this evaluation, for its folder of summaries.
            checkpoint_path: The checkpoint; None for the newest.
            hooks: SessionRunHooks.
            log_progress: Has no effect.

        Returns:
            Values of the metrics, "loss" and "global_step".

        Raises:
            ConfigTypeError: (a TypeError) If x, y, feed_fn or batch_size is given.
        """
        if callable(x) and input_fn is None:
            x, input_fn = None, x
        self._check_inputs("evaluate", x, y, batch_size or feed_fn, input_fn)
        if not all(isinstance(each, MetricSpec) for each in (metrics or {}).values()):
            raise ConfigTypeError(
                f"Estimator.evaluate: metrics are {metrics!r}; give a dict from names "
                "to tf.contrib.learn.MetricSpec"
            )
        self._learn_metrics = dict(metrics or {})
        try:
            return super().evaluate(
                input_fn, steps, hooks, checkpoint_path=checkpoint_path, name=name
            )
        finally:
            self._learn_metrics = {}

    def predict(
        self,
        x: Any = None,
        input_fn: Callable[..., Any] | None = None,
        batch_size: None = None,
        outputs: Sequence[str] | None = None,
        as_iterable: bool = True,
        iterate_batches: bool = False,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield predictions, as `tf.estimator.Estimator.predict` does.

        Args:
            x: Must be None, or input_fn as the only positional argument.
            input_fn: A function that returns features.
            batch_size: Must be None.
            outputs: The keys to predict; None for all.
            as_iterable: Must be True.
            iterate_batches: Whether to yield whole batches.
            **kwargs: More arguments of `tf.estimator.Estimator.predict`.

        Raises:
            ConfigTypeError: (a TypeError) If x or batch_size is given, or
                `as_iterable` is False.
        """
        if callable(x) and input_fn is None:
            x, input_fn = None, x
        self._check_inputs("predict", x, None, batch_size, input_fn)
        if not as_iterable:
            raise ConfigTypeError(
                "Estimator.predict: as_iterable is False; make a list of what it yields"
            )
        kwargs.setdefault("predict_keys", outputs)
        kwargs.setdefault("yield_single_examples", not iterate_batches)
        return super().predict(input_fn, **kwargs)

    @staticmethod
    def _check_inputs(method: str, x: Any, y: Any, size: Any, input_fn: Any) -> None:
        if input_fn is None or not (x is None and y is None and size is None):
            raise ConfigTypeError(
                f"Estimator.{method}: x, y, feed_fn and batch_size are no longer "
                "supported; give input_fn, such as tf.estimator.inputs.numpy_input_fn("
                "x, y, batch_size, shuffle=True)"
            )


def replace_monitors_with_hooks(
    monitors_or_hooks: Sequence[Any] | Any | None, estimator: Any
) -> list[Any]:
    """Return hooks: those given, as the monitors of `tf.contrib.learn` are gone.

    Args:
        monitors_or_hooks: One or a list of SessionRunHooks, or None.
        estimator: Has no effect.

    Raises:
        ConfigTypeError: (a TypeError) If one of them is no SessionRunHook.
    """
    given = monitors_or_hooks or []
    hooks = list(given) if isinstance(given, (list, tuple)) else [given]
    for each in hooks:
        if not isinstance(each, tf1.train.SessionRunHook):
            raise ConfigTypeError(
                f"monitors: {each!r} is no SessionRunHook; the monitors of "
                "tf.contrib.learn are gone: use a tf.train.SessionRunHook"
            )
    return hooks


def _spec(ops: Any, mode: str) -> tf.estimator.EstimatorSpec:
    """Return the EstimatorSpec of what a model function has returned."""
    if isinstance(ops, tf.estimator.EstimatorSpec):
        return ops
    if isinstance(ops, ModelFnOps):
        return ops.estimator_spec()
    if isinstance(ops, tuple) and len(ops) == 3:
        predictions, loss, train_op = ops
        return ModelFnOps(mode, predictions, loss, train_op).estimator_spec()
    raise ConfigTypeError(
        f"Estimator: model_fn returned {type(ops).__name__}; return ModelFnOps, an "
        "EstimatorSpec, or a tuple (predictions, loss, train_op)"
    )


def _accepted(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return those of the keyword arguments that a function has parameters for."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return given
    names = {each.name for each in parameters}
    return {name: value for name, value in given.items() if name in names}


def _chosen(values: Any, key: str | None, argument: str) -> Any:
    """Return one of several tensors, by its key."""
    if not isinstance(values, Mapping):
        return values
    if key is None and len(values) == 1:
        (value,) = values.values()
        return value
    if key not in values:
        raise ConfigError(
            f"MetricSpec: {argument} is {key!r}, but there are "
            f"{', '.join(map(repr, values))}; choose one of them"
        )
    return values[key]
