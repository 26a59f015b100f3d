"""A patch that makes canned Estimators accept new-style Keras optimizers.

The frozen package needs optimizers of `tf.keras.optimizers.legacy`. It converts a
new-style optimizer only in eager execution, in which the model_fn of a canned Estimator
never runs.
"""

import functools
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from estimator_runtime.estimator.keras import refuse

# Settings that change the step, and that the conversion would silently drop.
_WITHOUT_LEGACY = ("weight_decay", "use_ema")


def patch_canned(_module: ModuleType) -> None:
    """Make canned Estimators accept an optimizer made outside of their graph."""
    from tensorflow_estimator.python.estimator.canned import optimizers

    original = optimizers.get_optimizer_instance_v2

    @functools.wraps(original)
    def get_optimizer_instance_v2(opt: Any, learning_rate: Any = None) -> Any:
        refuse("the optimizer is", opt)
        return original(_legacy(opt), learning_rate)

    optimizers.get_optimizer_instance_v2 = get_optimizer_instance_v2


def _legacy(optimizer: Any) -> Any:
    """Return the legacy optimizer that takes the same steps, or `optimizer` itself.

    The frozen package raises an error for the latter that says what to write instead.
    """
    if not _has_equal_legacy(optimizer):
        return optimizer
    if tf.is_symbolic_tensor(optimizer.iterations.handle):
        return optimizer  # hyperparameters that are made in a graph cannot be read
    with context.eager_mode():
        config = optimizer.get_config()
        if any(config.get(name) for name in _WITHOUT_LEGACY):
            return optimizer
        return tf.keras.__internal__.optimizers.convert_to_legacy_optimizer(optimizer)


def _has_equal_legacy(optimizer: Any) -> bool:
    """Return whether the legacy optimizer of the same name takes the same steps.

    The legacy Nadam has another schedule. The legacy Adagrad, and the legacy RMSprop
    without momentum, add epsilon to the square root and not below it. The conversion
    uses the name of the class, so a subclass would lose its overrides.
    """
    new = tf.keras.optimizers
    if type(optimizer) is new.Adagrad:  # the default differs by rounding
        return optimizer.epsilon <= 1e-7 and optimizer.initial_accumulator_value >= 0.1
    if type(optimizer) is new.RMSprop:
        return optimizer.momentum > 0
    # `adaptive_epsilon` is an option of Adam in newer tf-keras. The config lacks it.
    return type(optimizer) in (
        new.SGD,
        new.Adam,
        new.Ftrl,
        new.Adadelta,
        new.Adamax,
    ) and not getattr(optimizer, "adaptive_epsilon", False)
