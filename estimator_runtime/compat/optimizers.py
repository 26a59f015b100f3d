"""New-style Keras optimizers in canned Estimators.

The frozen package asks for `tf.keras.optimizers.legacy`, but converts a new-style
optimizer only while executing eagerly, which a canned Estimator's model_fn never does.
"""

import functools

import tensorflow as tf
from tensorflow.python.eager import context

# What the conversion would drop in silence, though it changes the step.
_WITHOUT_LEGACY = ("weight_decay", "use_ema")


def patch_canned(_module):
    """Let canned Estimators take an optimizer that was made outside of their graph."""
    from tensorflow_estimator.python.estimator.canned import optimizers

    original = optimizers.get_optimizer_instance_v2

    @functools.wraps(original)
    def get_optimizer_instance_v2(opt, learning_rate=None):
        return original(_legacy(opt), learning_rate)

    optimizers.get_optimizer_instance_v2 = get_optimizer_instance_v2


def _legacy(optimizer):
    """Convert what takes the same steps; leave the rest to the frozen package.

    Its error says what to write instead.
    """
    if not isinstance(optimizer, tf.keras.optimizers.experimental.Optimizer):
        return optimizer
    if tf.is_symbolic_tensor(optimizer.iterations.handle):
        return optimizer  # made in a graph: its hyperparameters cannot be read
    with context.eager_mode():
        config = optimizer.get_config()
        if any(config.get(name) for name in _WITHOUT_LEGACY):
            return optimizer
        return tf.keras.__internal__.optimizers.convert_to_legacy_optimizer(optimizer)
