"""`RunConfig.tf_random_seed` reaches Keras's own generator.

"Setting this value allows consistency between reruns", says the frozen RunConfig;
but the initializers behind `tf.compat.v1.layers` and Keras layers draw their seeds
from a generator that only `tf.keras.utils.set_random_seed` seeds, so two runs with
the same seed start from different weights.
"""

import contextlib
import functools
import importlib
import random

import tensorflow as tf


def patch_estimator(_module):
    """Seed Keras's generator while an Estimator with a seed calls its model_fn."""
    from tensorflow_estimator.python.estimator import estimator

    original = estimator.Estimator._call_model_fn

    @functools.wraps(original)
    def call_model_fn(self, features, labels, mode, config):
        with keras_seed(self.config.tf_random_seed):
            return original(self, features, labels, mode, config)

    estimator.Estimator._call_model_fn = call_model_fn


@contextlib.contextmanager
def keras_seed(seed):
    """Let Keras draw from a generator made of `seed`; put back the program's own.

    The generator is per thread, as strategies call model_fn in a thread per
    replica. With `seed` None nothing changes.
    """
    if seed is None:
        yield
        return
    generators = _keras_backend()._SEED_GENERATOR
    before = getattr(generators, "generator", None)
    generators.generator = _Generator(seed)
    try:
        yield
    finally:
        generators.generator = before


class _Generator(random.Random):
    """Draws what Keras asks for: up to 2.18 at least, randint(1, 1e9).

    Python 3.10 and 3.11 warn of the float, and 3.12 refuses it.
    """

    def randint(self, a, b):
        return super().randint(int(a), int(b))


def _keras_backend():
    # tf_keras.src.backend or keras.src.backend, whichever tf.keras stands for:
    # Layer's own module says it, and no public name leads to the generator.
    package = tf.keras.layers.Layer.__module__.partition(".")[0]
    return importlib.import_module(f"{package}.src.backend")
