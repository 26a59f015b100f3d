"""Keras 3 where an Estimator needs `tf.keras`: one clear error, at the first use of it.

`import keras` was `tf.keras` up to TensorFlow 2.15, and is Keras 3 since. Its layers
are named by a counter of the process, so the second graph of an Estimator has other
variables than its checkpoint, and what they update beside their weights (the means of
BatchNormalization, the state of Dropout) is never run by a train_op.
"""

import contextlib
import functools
import sys
import types

import tensorflow as tf

from estimator_runtime.compat import versions
from estimator_runtime.errors import CompatibilityError

# Between whoever makes a variable and a creator of variables.
_BETWEEN = ("tensorflow", "estimator_runtime")


def patch_model_to_estimator(_module):
    """Let `model_to_estimator` say that a model is Keras 3's."""
    from tensorflow_estimator.python.estimator import keras_lib

    original = keras_lib._assert_valid_model  # the first to look at the model

    @functools.wraps(original)
    def assert_valid_model(model, custom_objects=None):
        refuse("model_to_estimator was given", model)
        return original(model, custom_objects)

    keras_lib._assert_valid_model = assert_valid_model


def patch_model_fn(_module):
    """Let no model_fn make variables with Keras 3; what makes none may be used."""
    from tensorflow_estimator.python.estimator import estimator

    original = estimator.Estimator._call_model_fn

    @functools.wraps(original)
    def call_model_fn(self, features, labels, mode, config):
        with _refusing_variables():
            return original(self, features, labels, mode, config)

    estimator.Estimator._call_model_fn = call_model_fn


def refuse(what, thing):
    """Refuse a thing of Keras 3.

    Args:
        what: The text that its name completes, such as "the optimizer is".
        thing: Anything.

    Raises:
        CompatibilityError: If its class, or one that it derives from, is of Keras 3.
    """
    packages = {each.__module__.partition(".")[0] for each in type(thing).__mro__}
    if "keras" in packages and _is_keras_3_imported():
        raise _refusal(what, thing)


@contextlib.contextmanager
def _refusing_variables():
    """Refuse, at once and at the end, that Keras 3 makes variables of this graph."""
    first = None

    def create(next_creator, **kwargs):
        nonlocal first
        # What is made eagerly, in the midst of a graph or not, is no part of it.
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
        # Keras has swallowed it, as where it tries a layer out to learn its weights, or
        # has made another error of it.
        raise first from None


def _is_keras_3_imported():
    return versions.major(sys.modules.get("keras")) >= 3


def _keras_maker():
    """Give the object of Keras through which the program makes a variable, or None.

    A `tf.Variable` that a program's own layer makes itself is like any other.
    """
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and _package(frame) in _BETWEEN:
        frame = frame.f_back
    maker = None
    while frame is not None and _package(frame) == "keras":
        # The last one is what the program has called.
        maker = frame.f_locals.get("self", maker)
        frame = frame.f_back
    return maker


def _package(frame):
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _refusal(what, thing):
    cls = type(thing)
    return CompatibilityError(
        f"{what} {cls.__name__} of Keras 3 ({cls.__module__}.{cls.__qualname__}), "
        "which Estimators cannot use. `import keras` is Keras 3 on TensorFlow 2.16 and "
        "newer; write `from tensorflow import keras`, or `import tf_keras as keras`, "
        "and `from tensorflow.keras...` for `from keras...`"
    )
