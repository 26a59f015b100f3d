"""Configuration classes for TPU embeddings, as in TensorFlow up to 2.15.

A program for TPUs passes these objects to its TPUEstimator on a machine without a TPU
too. There the frozen package only checks their types, because the embedding columns
themselves work on a CPU. So the parameters of the optimizers take any arguments, which
nothing reads.
"""

import collections
from typing import Any

_MODULE = "tensorflow.python.tpu.tpu_embedding"  # the name that pickles refer to
_OPTIMIZERS = (
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "MomentumParameters",
    "ProximalAdagradParameters",
    "RMSPropParameters",
    "StochasticGradientDescentParameters",
)


class _Parameters:
    """The parameters of an optimizer of embeddings."""

    def __init__(self, learning_rate: float, *_others: Any, **named: Any) -> None:
        vars(self).update(named, learning_rate=learning_rate)


CLASSES = {
    **{
        name: type(name, (_Parameters,), {"__module__": _MODULE})
        for name in _OPTIMIZERS
    },
    "TableConfig": collections.namedtuple(
        "TableConfig",
        "vocabulary_size dimension initializer combiner hot_id_replication "
        "learning_rate learning_rate_fn optimization_parameters",
        defaults=(None, "mean", False, None, None, None),
        module=_MODULE,
    ),
    "FeatureConfig": collections.namedtuple(
        "FeatureConfig",
        "table_id max_sequence_length weight_key",
        defaults=(0, None),
        module=_MODULE,
    ),
}
