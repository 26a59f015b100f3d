"""What the graph of an Estimator depends on, except its inputs.

Nobody can tell what a model_fn of the program reads. That of TensorFlow's own
Estimators reads the arguments of the constructor, which its closure holds. If these are
data, such as feature columns without a function of the program, the model_fn builds the
same graph as long as they are equal.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import re
import sys
import types
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import tensorflow as tf

_CANNED = {
    f"tensorflow_estimator.python.estimator.canned.{name}"
    for name in ("baseline", "dnn", "dnn_linear_combined", "linear")
}
_PACKAGES = {"keras", "tensorflow", "tensorflow_estimator", "tf_keras"}
_PLAIN = (bool, bytes, complex, float, int, str, type(None))
_SERIES: tuple[type, ...] = (frozenset, list, range, set, tuple, type({}.values()))
_COLUMNS = "tensorflow.python.feature_column."
_HEADS = re.compile(r"tensorflow_estimator\.python\.estimator\.(canned\.)?head\b.*")
# Optimizers and initializers: neither an evaluation nor a prediction looks into them.
_UNUSED = re.compile(
    r"tensorflow\.python\.(training|ops\.init_ops)\w*(\..*)?"
    r"|(tf_)?keras\.src\.(initializers|optimizers)(\..*)?"
)


class _NotData(Exception):
    """An argument of an Estimator that may be code of the program."""


def model_key(estimator: Any) -> Hashable:
    """Return a key for what the graph of an Estimator depends on, except its inputs."""
    return (
        _by_value((estimator._model_fn, estimator._params, estimator._config)),
        arguments(estimator),
        estimator._config.tf_random_seed,
        estimator._session_config.SerializeToString(deterministic=True),
        # Settings of the program that layers of Keras read.
        tf.keras.backend.floatx(),
        tf.keras.backend.epsilon(),
        tf.keras.mixed_precision.global_policy().name,
    )


def arguments(estimator: Any) -> Hashable | None:
    """Return a key for the arguments of one of TensorFlow's own Estimators.

    Returns:
        None for another Estimator, and if an argument may be code of the program.
    """
    cls, model_fn = type(estimator), estimator._model_fn
    if cls.__module__ not in _CANNED or not _is_of_tensorflow(cls):
        return None
    # Not another model_fn that the program has set.
    constants = inspect.unwrap(cls.__init__).__code__.co_consts
    if getattr(model_fn, "__code__", None) not in constants:
        return None
    try:
        cells = [cell.cell_contents for cell in model_fn.__closure__]
        return _by_value(cells, _of_tensorflow)
    except _NotData:
        return None


class _Identical:
    """An object that equals only itself, and stays alive as long as a key has it."""

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identical) and self._thing is other._thing

    def __hash__(self) -> int:
        return id(self._thing)


def _by_value(thing: Any, of_other: Callable[[Any], Hashable] = _Identical) -> Hashable:
    """Return a key for an object: of its plain values, and `of_other` of the others."""
    kind = type(thing)
    if kind in _PLAIN:
        return kind, repr(thing)  # tells -0.0 from 0.0, and finds NaN again
    if kind is dict:
        pairs = (
            (_by_value(k, of_other), _by_value(v, of_other)) for k, v in thing.items()
        )
        return kind, tuple(pairs)
    if kind in _SERIES:
        if set(map(type, thing)) == {str}:  # such as a long vocabulary
            return kind, tuple(thing)
        return kind, tuple(_by_value(each, of_other) for each in thing)
    return of_other(thing)


def _of_tensorflow(thing: Any) -> Hashable:
    """Return a key for an object that consists of TensorFlow's code and of data.

    Raises:
        _NotData: If it may be something else.
    """
    kind = type(thing)
    if isinstance(thing, (np.generic, tf.DType)):
        return kind, repr(thing)
    if kind is types.FunctionType and _is_of_tensorflow(thing):
        return _Identical(thing)
    if not _is_of_tensorflow(kind):
        raise _NotData
    if issubclass(kind, tuple) and kind.__module__.startswith(_COLUMNS):
        return kind, _by_value(tuple(thing), _of_tensorflow)
    if _HEADS.fullmatch(kind.__module__):
        return kind, _by_value(_parts(thing), _of_tensorflow)
    if _UNUSED.fullmatch(kind.__module__):
        return _Identical(thing)
    raise _NotData


def _parts(head: Any) -> dict[str, Any]:
    """Return the attributes of a head, without its own methods and its last tables."""
    return {
        name: value
        for name, value in vars(head).items()
        if not name.startswith("_cached_")
        and getattr(value, "__self__", None) is not head
    }


def _is_of_tensorflow(thing: Any) -> bool:
    """Return whether a class or function is one that TensorFlow's modules define."""
    name = thing.__module__ or ""
    if name.partition(".")[0] not in _PACKAGES:
        return False
    with contextlib.suppress(AttributeError):
        return operator.attrgetter(thing.__qualname__)(sys.modules.get(name)) is thing
    return False
