"""What `tf.contrib.estimator` had beside `tf.estimator`: heads and wrappers.

The heads take the optimizers of TensorFlow 1, `tf.compat.v1.train.Optimizer`, unlike
those of `tf.estimator`. Names, defaults and metrics are those of TensorFlow 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError
from estimator_runtime.estimator.removed import contrib as private
from estimator_runtime.patching.frozen import MultiLabelHead

__all__ = [
    "binary_classification_head",
    "clip_gradients_by_norm",
    "forward_features",
    "logistic_regression_head",
    "multi_class_head",
    "multi_head",
    "multi_label_head",
    "poisson_regression_head",
    "regression_head",
    "replicate_model_fn",
    "tower_optimizer",
]

tf1 = tf.compat.v1
_MEAN = tf1.losses.Reduction.SUM_OVER_BATCH_SIZE
# What the newer heads call the reductions of TensorFlow 1.
_REDUCTIONS = {
    tf1.losses.Reduction.SUM: tf.losses.Reduction.SUM,
    tf1.losses.Reduction.SUM_OVER_BATCH_SIZE: tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
}
_SERVING = tf1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def multi_class_head(
    n_classes: int,
    weight_column: Any = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for one of `n_classes` > 2 classes, with softmax cross entropy."""
    return private.multi_class_head(
        n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name
    )


def binary_classification_head(
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for one of two classes, with sigmoid cross entropy."""
    return private.binary_head(
        weight_column, thresholds, label_vocabulary, loss_reduction, loss_fn, name
    )


def regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    inverse_link_fn: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for `label_dimension` numbers, with mean squared error."""
    return private.regression_head(
        weight_column, label_dimension, loss_reduction, loss_fn, inverse_link_fn, name
    )


def poisson_regression_head(
    weight_column: Any = None,
    label_dimension: int = 1,
    loss_reduction: str = _MEAN,
    compute_full_loss: bool = True,
    name: str | None = None,
) -> Any:
    """Return a head for counts: the logits are logarithms of the expected counts."""

    def loss(labels: Any, logits: Any) -> Any:
        return tf.nn.log_poisson_loss(
            targets=labels, log_input=logits, compute_full_loss=compute_full_loss
        )

    return regression_head(
        weight_column, label_dimension, loss_reduction, loss, tf.exp, name
    )


def logistic_regression_head(
    weight_column: Any = None, loss_reduction: str = _MEAN, name: str | None = None
) -> Any:
    """Return a head for a label from 0 to 1, with sigmoid cross entropy."""

    def loss(labels: Any, logits: Any) -> Any:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    return regression_head(weight_column, 1, loss_reduction, loss, tf.sigmoid, name)


class _MultiLabelHead(MultiLabelHead):
    """TensorFlow's head, for optimizers and train_op_fns of TensorFlow 1."""

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        regularization_losses: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tf.estimator.EstimatorSpec:
        if isinstance(optimizer, tf1.train.Optimizer):
            train_op_fn, optimizer = _minimizer(optimizer), None
        # As the heads of TensorFlow 1 do: batch norms update their means there.
        kwargs.setdefault("update_ops", tf1.get_collection(tf1.GraphKeys.UPDATE_OPS))
        return super().create_estimator_spec(
            features,
            mode,
            logits,
            labels=labels,
            optimizer=optimizer,
            train_op_fn=train_op_fn,
            regularization_losses=regularization_losses,
            **kwargs,
        )


def multi_label_head(
    n_classes: int,
    weight_column: Any = None,
    thresholds: Sequence[float] | None = None,
    label_vocabulary: Sequence[str] | None = None,
    loss_reduction: str = _MEAN,
    loss_fn: Callable[..., Any] | None = None,
    classes_for_class_based_metrics: Sequence[Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return a head for any number of `n_classes` classes, with sigmoid cross entropy.

    It is `tf.estimator.MultiLabelHead`, made to take optimizers of TensorFlow 1. Its
    metrics come from Keras; their names are those of TensorFlow 1.

    Raises:
        ConfigError: (a ValueError) If the reduction is neither SUM nor
            SUM_OVER_BATCH_SIZE.
    """
    if loss_reduction not in _REDUCTIONS:
        raise ConfigError(
            f"multi_label_head: loss_reduction is {loss_reduction!r}; use "
            f"{' or '.join(map(repr, _REDUCTIONS))}"
        )
    return _MultiLabelHead(
        n_classes=n_classes,
        weight_column=weight_column,
        thresholds=thresholds,
        label_vocabulary=label_vocabulary,
        loss_reduction=_REDUCTIONS[loss_reduction],
        loss_fn=loss_fn,
        classes_for_class_based_metrics=classes_for_class_based_metrics,
        name=name,
    )


class _MultiHead:
    """Several heads whose losses are added; see `multi_head`."""

    def __init__(self, heads: Sequence[Any], weights: Sequence[float]) -> None:
        self._heads = heads
        self._weights = weights

    @property
    def name(self) -> str:
        """The names of the heads, joined by underscores."""
        return "_".join(head.name for head in self._heads)

    @property
    def logits_dimension(self) -> int:
        """The sum of the heads' dimensions."""
        return sum(head.logits_dimension for head in self._heads)

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Mapping[str, Any] | None = None,
        optimizer: Any = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        regularization_losses: Sequence[Any] | None = None,
    ) -> tf.estimator.EstimatorSpec:
        """Return the spec of all heads; see `multi_head` for its keys."""
        split = self._split(logits)
        specs = [
            head.create_estimator_spec(
                features=features,
                mode=mode,
                logits=split[head.name],
                labels=None if labels is None else labels[head.name],
                **({"train_op_fn": _no_step} if mode == "train" else {}),
            )
            for head in self._heads
        ]
        if mode == tf.estimator.ModeKeys.PREDICT:
            return self._predictions(specs)
        loss = tf.add_n(
            [
                spec.loss if weight == 1.0 else weight * spec.loss
                for spec, weight in zip(specs, self._weights, strict=True)
            ]
        )
        if regularization_losses:
            loss += tf.add_n(regularization_losses)
        predictions = {
            (head.name, key): value
            for head, spec in zip(self._heads, specs, strict=True)
            for key, value in spec.predictions.items()
        }
        if mode == tf.estimator.ModeKeys.EVAL:
            metrics: dict[str, Any] = {}
            for head, spec in zip(self._heads, specs, strict=True):
                metrics[f"loss/{head.name}"] = tf1.metrics.mean(spec.loss)
                metrics.update(spec.eval_metric_ops)
            return tf.estimator.EstimatorSpec(
                mode, predictions, loss, eval_metric_ops=metrics
            )
        if (optimizer is None) == (train_op_fn is None):
            raise ConfigError(
                "multi_head: give create_estimator_spec either an optimizer or a "
                "train_op_fn"
            )
        step = (train_op_fn or _minimizer(optimizer))(loss)
        # The heads' own train ops update batch norms and the like before their no-op.
        with tf.control_dependencies([spec.train_op for spec in specs]):
            train_op = tf.group(step)
        return tf.estimator.EstimatorSpec(mode, predictions, loss, train_op)

    def _split(self, logits: Any) -> Mapping[str, Any]:
        if isinstance(logits, Mapping):
            return logits
        sizes = [head.logits_dimension for head in self._heads]
        parts = tf.split(logits, sizes, axis=-1)
        return {head.name: part for head, part in zip(self._heads, parts, strict=True)}

    def _predictions(
        self, specs: Sequence[tf.estimator.EstimatorSpec]
    ) -> tf.estimator.EstimatorSpec:
        predictions, outputs, merged = {}, {}, {}
        # The default output of the first head is that of all.
        outputs[_SERVING] = specs[0].export_outputs[_SERVING]
        for head, spec in zip(self._heads, specs, strict=True):
            for key, value in spec.predictions.items():
                predictions[(head.name, key)] = value
                merged[f"{head.name}/{key}"] = value
            for key, output in spec.export_outputs.items():
                is_default = key == _SERVING
                outputs[head.name if is_default else f"{head.name}/{key}"] = output
        outputs["predict"] = tf.estimator.export.PredictOutput(merged)
        return tf.estimator.EstimatorSpec(
            tf.estimator.ModeKeys.PREDICT, predictions, export_outputs=outputs
        )


def multi_head(
    heads: Sequence[Any], head_weights: Sequence[float] | None = None
) -> Any:
    """Return a head that trains several heads together.

    Its loss is the weighted sum of their losses. `labels` is a dict with the labels of
    each head by its name; `logits` is such a dict too, or one tensor with those of all
    heads side by side. Predictions have the keys (head name, key), and metrics are
    named as the heads name them ("accuracy/NAME"), with "loss/NAME" of each.

    Args:
        heads: Heads of this module, each with a name of its own.
        head_weights: A factor for the loss of each head; None for 1.

    Raises:
        ConfigError: (a ValueError) If there is no head, a name is missing or used
            twice, or the number of weights is another than that of heads.
    """
    names = [head.name for head in heads]
    if not heads or None in names or len(set(names)) < len(names):
        raise ConfigError(
            f"multi_head: the heads have the names {names}; give at least one head, "
            "and each a name of its own"
        )
    if head_weights is not None and len(head_weights) != len(heads):
        raise ConfigError(
            f"multi_head: there are {len(head_weights)} head_weights for {len(heads)} "
            "heads; give one for each"
        )
    return _MultiHead(list(heads), list(head_weights or [1.0] * len(heads)))


def clip_gradients_by_norm(optimizer: Any, clip_norm: float) -> Any:
    """Return an optimizer that scales gradients down to a global norm.

    Args:
        optimizer: A `tf.compat.v1.train.Optimizer`.
        clip_norm: The largest norm of all gradients together.
    """
    return _ClippingOptimizer(optimizer, clip_norm)


class _ClippingOptimizer(tf.compat.v1.train.Optimizer):
    """See `clip_gradients_by_norm`."""

    def __init__(self, optimizer: Any, clip_norm: float) -> None:
        super().__init__(use_locking=False, name="ClipByNorm" + optimizer.get_name())
        self._optimizer = optimizer
        self._clip_norm = clip_norm

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, self._clip_norm)
        pairs = list(zip(clipped, variables, strict=True))
        return self._optimizer.apply_gradients(pairs, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self) -> Any:
        return self._optimizer.variables()


def replicate_model_fn(
    model_fn: Callable[..., Any],
    loss_reduction: str = tf.compat.v1.losses.Reduction.SUM_BY_NONZERO_WEIGHTS,
    devices: Sequence[str] | None = None,
) -> Callable[..., Any]:
    """Return model_fn itself, where there is one device.

    In TensorFlow 1 it ran a copy on each GPU.

    Args:
        model_fn: The model_fn of an Estimator.
        loss_reduction: Has no effect with one device.
        devices: Devices; None for all GPUs.

    Raises:
        ConfigError: (a ValueError) If there are several devices.
    """
    gpus = devices or tf.config.list_physical_devices("GPU")
    if len(gpus) > 1:
        raise ConfigError(
            f"replicate_model_fn: there are {len(gpus)} devices, and it is no longer "
            "supported; give the RunConfig "
            "train_distribute=tf.contrib.distribute.MirroredStrategy(), and take "
            "TowerOptimizer away"
        )
    return model_fn


def tower_optimizer(optimizer_or_optimizer_fn: Any) -> Any:
    """Return an optimizer itself: `TowerOptimizer`, where there is one device.

    Args:
        optimizer_or_optimizer_fn: A `tf.train.Optimizer`, or a function that makes one.
    """
    given = optimizer_or_optimizer_fn
    return given if isinstance(given, tf1.train.Optimizer) else given()


def forward_features(
    estimator: tf.estimator.Estimator,
    keys: str | Sequence[str] | None = None,
    sparse_default_values: Mapping[str, Any] | None = None,
) -> tf.estimator.Estimator:
    """Return an Estimator whose predictions contain features too.

    Args:
        estimator: The Estimator; its predictions must be a dict. It is not changed.
        keys: The features to add, by name; None for all.
        sparse_default_values: By feature, what stands for a missing value when a
            sparse feature is made dense; 0 or "" where a name is missing.

    Raises:
        ConfigError: When it predicts, if a key is unknown, or a prediction has the
            same name.
    """
    wanted = [keys] if isinstance(keys, str) else keys
    defaults = dict(sparse_default_values or {})

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != tf.estimator.ModeKeys.PREDICT:
            return spec
        added = _dense(features, list(features) if wanted is None else wanted, defaults)
        twice = sorted(set(added) & set(spec.predictions))
        if twice:
            raise ConfigError(
                f"forward_features: {', '.join(twice)}: predictions have that name "
                "too; leave it out of keys"
            )
        outputs = {
            key: tf.estimator.export.PredictOutput({**output.outputs, **added})
            if isinstance(output, tf.estimator.export.PredictOutput)
            else output
            for key, output in (spec.export_outputs or {}).items()
        }
        return spec._replace(
            predictions={**spec.predictions, **added}, export_outputs=outputs or None
        )

    return tf1.estimator.Estimator(
        model_fn, model_dir=estimator.model_dir, config=estimator.config
    )


def _dense(
    features: Mapping[str, Any], keys: Sequence[str], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    unknown = sorted(set(keys) - set(features))
    if unknown:
        raise ConfigError(
            f"forward_features: there is no feature {', '.join(map(repr, unknown))}; "
            f"there are {', '.join(sorted(features))}"
        )
    added = {}
    for key in keys:
        value = features[key]
        if isinstance(value, tf.SparseTensor):
            missing = "" if value.dtype == tf.string else 0
            value = tf.sparse.to_dense(value, defaults.get(key, missing))
        added[key] = value
    return added


def _minimizer(optimizer: Any) -> Callable[[Any], Any]:
    """Return a function from a loss to a training step of an optimizer."""
    return lambda loss: optimizer.minimize(
        loss, global_step=tf1.train.get_global_step()
    )


def _no_step(_loss: Any) -> Any:
    """Return an op that trains nothing: `_MultiHead` trains the sum of the losses."""
    return tf.no_op()
