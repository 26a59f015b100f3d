"""Configuration classes for TPU embeddings, as in TensorFlow up to 2.15.

A program for TPUs passes these objects to its TPUEstimator on a machine without a TPU
too. There the frozen package only checks their types, because the embedding columns
themselves work on a CPU. This module has the classes that TPUEstimator accepts, and
nothing that uses a TPU.
"""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = [
    "AdagradParameters",
    "AdamParameters",
    "FeatureConfig",
    "FtrlParameters",
    "MomentumParameters",
    "ProximalAdagradParameters",
    "RMSPropParameters",
    "StochasticGradientDescentParameters",
    "TableConfig",
]

_MODULE = "tensorflow.python.tpu.tpu_embedding"  # the name that pickles refer to
_POSITIVE = "more than 0", lambda value: value > 0
_NOT_NEGATIVE = "0 or more", lambda value: value >= 0
_NOT_POSITIVE = "0 or less", lambda value: value <= 0
_BELOW_ONE = "0 or more, and less than 1", lambda value: 0 <= value < 1

_Range = tuple[str, Callable[[float], bool]]


def _ranged(default: float, allowed: _Range) -> Any:
    """Return a dataclass field whose values have to be in a range."""
    return dataclasses.field(default=default, metadata={"allowed": allowed})


@dataclasses.dataclass(eq=False)
class _OptimizationParameters:
    """The optimizer with which the TPU updates the tables.

    Raises:
        ValueError: If a value is not in its range, or if gradients are clipped but not
            accumulated.
    """

    learning_rate: float

    def __post_init__(self) -> None:
        values = vars(self)
        who = type(self).__name__
        for field in dataclasses.fields(self):
            words, is_allowed = field.metadata.get("allowed", ("", None))
            value = getattr(self, field.name)
            if is_allowed is not None and not is_allowed(value):
                raise ValueError(f"{who}: {field.name} is {value!r}; give {words}")
        limits = values["clip_gradient_min"], values["clip_gradient_max"]
        are_clipped = limits != (None, None)
        is_whole = not values.get("lazy_adam", True)  # Adam updates all rows of a table
        if (are_clipped or is_whole) and not values["use_gradient_accumulation"]:
            raise ValueError(
                f"{who}: gradients have to be accumulated where they are clipped, or "
                "lazy_adam is False; leave out clip_gradient_min, clip_gradient_max "
                "and lazy_adam=False, or use_gradient_accumulation=False"
            )


_COMMON = (
    ("use_gradient_accumulation", bool, True),
    ("clip_weight_min", float | None, None),
    ("clip_weight_max", float | None, None),
    ("weight_decay_factor", float | None, None),
    ("multiply_weight_decay_factor_by_learning_rate", bool | None, None),
)
_CLIPPED = (
    ("clip_gradient_min", float | None, None),
    ("clip_gradient_max", float | None, None),
)
_REGULARIZED = (
    ("l1_regularization_strength", float, _ranged(0.0, _NOT_NEGATIVE)),
    ("l2_regularization_strength", float, _ranged(0.0, _NOT_NEGATIVE)),
)
_ACCUMULATED = ("initial_accumulator", float, _ranged(0.1, _POSITIVE))


def _parameters(name: str, *fields: tuple[Any, ...]) -> type[_OptimizationParameters]:
    """Return a subclass of `_OptimizationParameters` with these dataclass fields."""
    # The arguments are in TensorFlow's order, because programs may pass them by
    # position.
    return dataclasses.make_dataclass(
        name,
        fields,
        bases=(_OptimizationParameters,),
        eq=False,
        namespace={"__module__": _MODULE},
    )


AdagradParameters = _parameters("AdagradParameters", _ACCUMULATED, *_COMMON, *_CLIPPED)
AdamParameters = _parameters(
    "AdamParameters",
    ("beta1", float, _ranged(0.9, _BELOW_ONE)),
    ("beta2", float, _ranged(0.999, _BELOW_ONE)),
    ("epsilon", float, _ranged(1e-8, _POSITIVE)),
    ("lazy_adam", bool, True),
    ("sum_inside_sqrt", bool, True),
    *_COMMON,
    *_CLIPPED,
)
FtrlParameters = _parameters(
    "FtrlParameters",
    ("learning_rate_power", float, _ranged(-0.5, _NOT_POSITIVE)),
    ("initial_accumulator_value", float, _ranged(0.1, _NOT_NEGATIVE)),
    *_REGULARIZED,
    *_COMMON,
    ("multiply_linear_by_learning_rate", bool, False),
    ("beta", float, 0),
    ("allow_zero_accumulator", bool, False),
    *_CLIPPED,
    ("initial_linear_value", float, dataclasses.field(default=0.0, init=False)),
)
MomentumParameters = _parameters(
    "MomentumParameters",
    ("momentum", float),
    ("use_nesterov", bool, False),
    *_COMMON,
    *_CLIPPED,
)
ProximalAdagradParameters = _parameters(
    "ProximalAdagradParameters", _ACCUMULATED, *_REGULARIZED, *_COMMON, *_CLIPPED
)
RMSPropParameters = _parameters(
    "RMSPropParameters",
    ("rho", float),
    ("momentum", float),
    ("epsilon", float),
    *_COMMON,
    *_CLIPPED,
)
StochasticGradientDescentParameters = _parameters(
    "StochasticGradientDescentParameters", *_COMMON, *_CLIPPED
)


def _check_count(owner: str, name: str, value: object, least: int) -> None:
    """Raise `ValueError` unless `value` is an integer, `least` or greater."""
    if not isinstance(value, int) or value < least:
        raise ValueError(
            f"{owner}: {name} is {value!r}; give a whole number, {least} or more"
        )


class TableConfig(
    collections.namedtuple(
        "TableConfig",
        "vocabulary_size dimension initializer combiner hot_id_replication "
        "learning_rate learning_rate_fn optimization_parameters",
    )
):
    """An embedding table.

    Args:
        vocabulary_size: Number of rows, 1 or more.
        dimension: Number of columns, 1 or more.
        initializer: Initializer of the values. None stands for a truncated normal
            distribution with a standard deviation of 1 / sqrt(dimension).
        combiner: How several rows of one example are reduced to one: "mean", "sum" or
            "sqrtn". None is for an input with one row per example.
        hot_id_replication: Whether the TPU replicates rows that many examples use.
        learning_rate: Learning rate of this table. None uses that of the optimizer.
        learning_rate_fn: Function from the global step to the learning rate. Use it
            instead of `learning_rate`.
        optimization_parameters: Optimizer of this table. None uses that of all tables.

    Raises:
        ValueError: If a value is invalid.
    """

    __slots__ = ()
    __module__ = _MODULE

    def __new__(
        cls,
        vocabulary_size: int,
        dimension: int,
        initializer: Callable[..., Any] | None = None,
        combiner: str | None = "mean",
        hot_id_replication: bool = False,
        learning_rate: float | None = None,
        learning_rate_fn: Callable[..., Any] | None = None,
        optimization_parameters: _OptimizationParameters | None = None,
    ) -> "TableConfig":
        """Check the values and make the tuple."""
        _check_count("TableConfig", "vocabulary_size", vocabulary_size, 1)
        _check_count("TableConfig", "dimension", dimension, 1)
        if initializer is not None and not callable(initializer):
            raise ValueError(
                f"TableConfig: initializer {initializer!r} is not callable"
            )
        if combiner not in ("mean", "sum", "sqrtn", None):
            raise ValueError(
                f"TableConfig: combiner is {combiner!r}; give 'mean', 'sum', 'sqrtn' "
                "or None"
            )
        if learning_rate is not None and learning_rate_fn is not None:
            raise ValueError(
                "TableConfig: give learning_rate or learning_rate_fn, not both"
            )
        if not isinstance(optimization_parameters, _OptimizationParameters | None):
            raise ValueError(
                f"TableConfig: optimization_parameters {optimization_parameters!r} are "
                "none; give some such as AdagradParameters(0.1)"
            )
        return super().__new__(
            cls,
            vocabulary_size,
            dimension,
            initializer
            or tf.compat.v1.truncated_normal_initializer(0.0, 1 / math.sqrt(dimension)),
            combiner,
            hot_id_replication,
            learning_rate,
            learning_rate_fn,
            optimization_parameters,
        )


class FeatureConfig(
    collections.namedtuple("FeatureConfig", "table_id max_sequence_length weight_key")
):
    """A feature that is looked up in a table.

    Args:
        table_id: Key of the table.
        max_sequence_length: Length to which a sequence is truncated. 0 is for a feature
            that is not a sequence.
        weight_key: Name of the feature with the weights of the values, or None.

    Raises:
        ValueError: If `max_sequence_length` is not an integer, 0 or greater.
    """

    __slots__ = ()
    __module__ = _MODULE

    def __new__(
        cls,
        table_id: str,
        max_sequence_length: int = 0,
        weight_key: str | None = None,
    ) -> "FeatureConfig":
        """Check the values and make the tuple."""
        _check_count("FeatureConfig", "max_sequence_length", max_sequence_length, 0)
        return super().__new__(cls, table_id, max_sequence_length, weight_key)
