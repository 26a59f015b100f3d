"""What describes an embedding on a TPU, as TensorFlow's tpu_embedding did up to 2.15.

A program for TPUs gives such descriptions to its TPUEstimator on a machine without one
too, where the frozen package looks at their types and uses nothing else of them: the
embedding columns themselves work on a CPU. So those that it takes are here; what uses a
TPU is not.
"""

import collections
import dataclasses
import math
from collections.abc import Callable

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

_MODULE = "tensorflow.python.tpu.tpu_embedding"  # by which pickles know them
_POSITIVE = "more than 0", lambda value: value > 0
_NOT_NEGATIVE = "0 or more", lambda value: value >= 0
_NOT_POSITIVE = "0 or less", lambda value: value <= 0
_BELOW_ONE = "0 or more, and less than 1", lambda value: 0 <= value < 1

_Range = tuple[str, Callable[[float], bool]]


def _ranged(default: float, allowed: _Range):
    return dataclasses.field(default=default, metadata={"allowed": allowed})


@dataclasses.dataclass(eq=False)
class _OptimizationParameters:
    """How the TPU updates the tables.

    Raises:
        ValueError: If a value is not in its range, or gradients are to be clipped that
            are not accumulated.
    """

    learning_rate: float

    def __post_init__(self):
        values = vars(self)
        who = type(self).__name__
        for field in dataclasses.fields(self):
            words, is_allowed = field.metadata.get("allowed", ("", None))
            value = getattr(self, field.name)
            if is_allowed is not None and not is_allowed(value):
                raise ValueError(f"{who}: {field.name} is {value!r}; give {words}")
        limits = values["clip_gradient_min"], values["clip_gradient_max"]
        are_clipped = limits != (None, None)
        is_whole = not values.get("lazy_adam", True)  # Adam of all rows of a table
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


def _parameters(name, *fields):
    # The arguments are in TensorFlow's order: programs may give them by position.
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


def _check_count(owner, name, value, least):
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
        vocabulary_size: Its rows, 1 or more.
        dimension: Its columns, 1 or more.
        initializer: Of its values; None for truncated normal ones with a standard
            deviation of 1 / sqrt(dimension).
        combiner: How several rows of an example become one: "mean", "sum", "sqrtn";
            None for an input that has one each.
        hot_id_replication: Whether the TPU copies rows that many examples have.
        learning_rate: Of this table; None for that of the optimizer.
        learning_rate_fn: Gives it from the global step, instead.
        optimization_parameters: Of this table; None for those of all.

    Raises:
        ValueError: If a value cannot be used.
    """

    __slots__ = ()
    __module__ = _MODULE

    def __new__(
        cls,
        vocabulary_size,
        dimension,
        initializer=None,
        combiner="mean",
        hot_id_replication=False,
        learning_rate=None,
        learning_rate_fn=None,
        optimization_parameters=None,
    ):
        """Check the values."""
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
        table_id: The table's key.
        max_sequence_length: Of a sequence, which is cut to it; 0 for no sequence.
        weight_key: The feature with the weights of its values, or None.

    Raises:
        ValueError: If `max_sequence_length` is no whole number, 0 or more.
    """

    __slots__ = ()
    __module__ = _MODULE

    def __new__(cls, table_id, max_sequence_length=0, weight_key=None):
        """Check the values."""
        _check_count("FeatureConfig", "max_sequence_length", max_sequence_length, 0)
        return super().__new__(cls, table_id, max_sequence_length, weight_key)
