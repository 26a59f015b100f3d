"""New-style Keras optimizers in canned Estimators.

The frozen package asks for `tf.keras.optimizers.legacy`, but converts a new-style
optimizer only while executing eagerly, which a canned Estimator's model_fn never does.
"""

import functools

import tensorflow as tf
from tensorflow.python.eager import context

from estimator_runtime.compat import keras_3

# What the conversion would drop in silence, though it changes the step.
_WITHOUT_LEGACY = ("weight_decay", "use_ema")


def patch_canned(_module):
    """Let canned Estimators take an optimizer that was made outside of their graph."""
    from tensorflow_estimator.python.estimator.canned import optimizers

    original = optimizers.get_optimizer_instance_v2

    @functools.wraps(original)
    def get_optimizer_instance_v2(opt, learning_rate=None):
        keras_3.refuse("the optimizer is", opt)
        return original(_legacy(opt), learning_rate)

    optimizers.get_optimizer_instance_v2 = get_optimizer_instance_v2


def _legacy(optimizer):
    """Convert what takes the same steps; leave the rest to the frozen package.

    Its error says what to write instead.
    """
    if not _has_equal_legacy(optimizer):
        return optimizer
    if tf.is_symbolic_tensor(optimizer.iterations.handle):
        return optimizer  # made in a graph: its hyperparameters cannot be read
    with context.eager_mode():
        config = optimizer.get_config()
        if any(config.get(name) for name in _WITHOUT_LEGACY):
            return optimizer
        return tf.keras.__internal__.optimizers.convert_to_legacy_optimizer(optimizer)


def _has_equal_legacy(optimizer):
    """Tell whether the legacy optimizer of the same name takes the same steps.

    That of Nadam has another schedule; those of RMSprop without momentum and of Adagrad
    add epsilon to the root, not below it. The conversion goes by the name of the class,
    so a subclass would lose what it overrides.
    """
    new = tf.keras.optimizers
    if type(optimizer) is new.Adagrad:  # by default the difference is one of rounding
        return optimizer.epsilon <= 1e-7 and optimizer.initial_accumulator_value >= 0.1
    if type(optimizer) is new.RMSprop:
        return optimizer.momentum > 0
    # Adam's option of newer tf-keras, which its config does not tell.
    return type(optimizer) in (
        new.SGD,
        new.Adam,
        new.Ftrl,
        new.Adadelta,
        new.Adamax,
    ) and not getattr(optimizer, "adaptive_epsilon", False)
