"""Seeding of Keras's random generator with `RunConfig.tf_random_seed`.

"Setting this value allows consistency between reruns", says the frozen RunConfig. But
the initializers of `tf.compat.v1.layers` and of Keras layers draw their seeds from a
generator that only `tf.keras.utils.set_random_seed` seeds. So two runs with the same
seed would start from different weights.
"""

import contextlib
import importlib
import random
from collections.abc import Iterator
from types import ModuleType

import tensorflow as tf


@contextlib.contextmanager
def keras_seed(seed: int | None) -> Iterator[None]:
    """Make Keras draw its seeds from a new generator in this context.

    At the end the program's own generator is back in place. Each thread has its own,
    because strategies call model_fn in one thread per replica.

    Args:
        seed: Seed of the new generator. None changes nothing.
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
    """A generator for Keras, which calls `randint(1, 1e9)`, up to 2.18 at least.

    Python 3.10 and 3.11 warn about the float, and 3.12 raises an error for it.
    """

    def randint(self, a: float, b: float) -> int:
        return super().randint(int(a), int(b))


def _keras_backend() -> ModuleType:
    # The backend of the Keras behind tf.keras: tf_keras.src.backend or
    # keras.src.backend, by the module of Layer. The generator has no public name.
    package = tf.keras.layers.Layer.__module__.partition(".")[0]
    return importlib.import_module(f"{package}.src.backend")
