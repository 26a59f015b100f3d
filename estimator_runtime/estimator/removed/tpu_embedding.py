"""Configuration classes for TPU embeddings, as in TensorFlow up to 2.15.

A program for TPUs passes these objects to its TPUEstimator on a machine without a TPU
too. There the frozen package only checks their types, because the embedding columns
themselves work on a CPU. So the classes have the names, fields, order and defaults of
TensorFlow 2.15, but they check no values and nothing here uses a TPU.
"""

import collections
import dataclasses
from typing import Any

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
_COMMON = {
    "use_gradient_accumulation": True,
    "clip_weight_min": None,
    "clip_weight_max": None,
    "weight_decay_factor": None,
    "multiply_weight_decay_factor_by_learning_rate": None,
}
_CLIPPED = {"clip_gradient_min": None, "clip_gradient_max": None}
_REGULARIZED = {"l1_regularization_strength": 0.0, "l2_regularization_strength": 0.0}


def _parameters(name: str, *required: str, **defaults: Any) -> type:
    """Return a class for an optimizer, which has a learning rate and these fields.

    The arguments are in TensorFlow's order, because programs may pass them by position.
    """
    return dataclasses.make_dataclass(
        name,
        [
            "learning_rate",
            *required,
            *((field, Any, default) for field, default in defaults.items()),
        ],
        eq=False,
        namespace={"__module__": _MODULE},
    )


AdagradParameters = _parameters(
    "AdagradParameters", initial_accumulator=0.1, **_COMMON, **_CLIPPED
)
AdamParameters = _parameters(
    "AdamParameters",
    beta1=0.9,
    beta2=0.999,
    epsilon=1e-8,
    lazy_adam=True,
    sum_inside_sqrt=True,
    **_COMMON,
    **_CLIPPED,
)
FtrlParameters = _parameters(
    "FtrlParameters",
    learning_rate_power=-0.5,
    initial_accumulator_value=0.1,
    **_REGULARIZED,
    **_COMMON,
    multiply_linear_by_learning_rate=False,
    beta=0,
    allow_zero_accumulator=False,
    **_CLIPPED,
    initial_linear_value=dataclasses.field(default=0.0, init=False),
)
MomentumParameters = _parameters(
    "MomentumParameters", "momentum", use_nesterov=False, **_COMMON, **_CLIPPED
)
ProximalAdagradParameters = _parameters(
    "ProximalAdagradParameters",
    initial_accumulator=0.1,
    **_REGULARIZED,
    **_COMMON,
    **_CLIPPED,
)
RMSPropParameters = _parameters(
    "RMSPropParameters", "rho", "momentum", "epsilon", **_COMMON, **_CLIPPED
)
StochasticGradientDescentParameters = _parameters(
    "StochasticGradientDescentParameters", **_COMMON, **_CLIPPED
)

TableConfig = collections.namedtuple(
    "TableConfig",
    "vocabulary_size dimension initializer combiner hot_id_replication "
    "learning_rate learning_rate_fn optimization_parameters",
    defaults=(None, "mean", False, None, None, None),
    module=_MODULE,
)
FeatureConfig = collections.namedtuple(
    "FeatureConfig",
    "table_id max_sequence_length weight_key",
    defaults=(0, None),
    module=_MODULE,
)
