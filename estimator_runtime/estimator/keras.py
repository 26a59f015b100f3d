"""Keras in an Estimator: the seeds of its layers, and clear errors for Keras 3.

"Setting this value allows consistency between reruns", says the frozen RunConfig of
`tf_random_seed`. But the initializers of `tf.compat.v1.layers` and of Keras layers draw
their seeds from a generator that only `tf.keras.utils.set_random_seed` seeds.

`import keras` was `tf.keras` up to TensorFlow 2.15, and is Keras 3 since. Estimators
cannot use its layers, for two reasons. Their names contain a counter of the process, so
the second graph of an Estimator has other variable names than its checkpoint. And a
train_op does not run the updates of their other state, such as the means of
BatchNormalization and the random state of Dropout.
"""

import contextlib
import functools
import importlib
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph

from estimator_runtime.errors import CompatibilityError
from estimator_runtime.tf_internals import versions

# Packages with frames between the code that makes a variable and a variable creator.
_BETWEEN = ("tensorflow", "estimator_runtime")


@contextlib.contextmanager
def seeded(seed: int | None) -> Iterator[None]:
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


def _keras_backend() -> types.ModuleType:
    # The backend of the Keras behind tf.keras: tf_keras.src.backend or
    # keras.src.backend, by the module of Layer. The generator has no public name.
    package = tf.keras.layers.Layer.__module__.partition(".")[0]
    return importlib.import_module(f"{package}.src.backend")


def keep_canned_layers(_module: types.ModuleType) -> None:
    """Make AutoGraph call the layers of canned Estimators as they are.

    Keras has it rewrite each layer outside its own packages. None of these has a loop
    or a branch on a tensor, and none calls a function of the program itself.
    """
    from tensorflow_estimator.python.estimator.canned import dnn, linear

    layers = (
        dnn._DNNModel,
        dnn._DNNModelV2,
        linear.LinearModel,
        linear._LinearModelLayer,
    )
    for layer in layers:
        autograph.autograph_artifact(layer.call)


def patch_model_to_estimator(_module: types.ModuleType) -> None:
    """Make `model_to_estimator` raise a clear error for a model of Keras 3."""
    from tensorflow_estimator.python.estimator import keras_lib

    original = keras_lib._assert_valid_model  # the first function to use the model

    @functools.wraps(original)
    def assert_valid_model(model: Any, custom_objects: Any = None) -> None:
        refuse("model_to_estimator was given", model)
        return original(model, custom_objects)

    keras_lib._assert_valid_model = assert_valid_model


def refuse(what: str, thing: object) -> None:
    """Raise a CompatibilityError if an object's class or a base class is of Keras 3.

    The name of the class follows `what` in the error, such as "the optimizer is".
    """
    packages = {each.__module__.partition(".")[0] for each in type(thing).__mro__}
    if "keras" in packages and _is_keras_3_imported():
        raise _refusal(what, thing)


@contextlib.contextmanager
def refusing_keras_3() -> Iterator[None]:
    """Raise an error if Keras 3 makes variables of the graph in this context.

    The error is raised at once, and again at the end if something has caught it. Parts
    of Keras 3 that make no variables may be used.
    """
    first: CompatibilityError | None = None

    def create(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        nonlocal first
        # Variables that are made eagerly, inside of a graph or not, are not part of it.
        if _is_keras_3_imported() and not tf.executing_eagerly():
            maker = _keras_maker()
            if maker is not None:
                error = _refusal("the model_fn makes variables with", maker)
                first = first or error
                raise error
        return next_creator(**kwargs)

    try:
        with tf.variable_creator_scope(create):
            yield
    except Exception as error:
        if first is None or error is first:
            raise
    if first is not None:
        # Keras has suppressed the error, as it does when it calls a layer to build its
        # weights, or has replaced it with another one.
        raise first from None


def _is_keras_3_imported() -> bool:
    return versions.major(sys.modules.get("keras")) >= 3


def _keras_maker() -> object | None:
    """Return the Keras object through which the program makes a variable, or None.

    It is None for a `tf.Variable` that a layer of the program makes directly.
    """
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and _package(frame) in _BETWEEN:
        frame = frame.f_back
    maker = None
    while frame is not None and _package(frame) == "keras":
        # The last one is the object that the program has called.
        maker = frame.f_locals.get("self", maker)
        frame = frame.f_back
    return maker


def _package(frame: types.FrameType) -> str:
    """Return the top-level package of the code that a frame runs."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _refusal(what: str, thing: object) -> CompatibilityError:
    cls = type(thing)
    return CompatibilityError(
        f"{what} {cls.__name__} of Keras 3 ({cls.__module__}.{cls.__qualname__}), "
        "which Estimators cannot use. `import keras` is Keras 3 on TensorFlow 2.16 and "
        "newer; write `from tensorflow import keras`, or `import tf_keras as keras`, "
        "and `from tensorflow.keras...` for `from keras...`"
    )
