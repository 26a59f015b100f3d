"""Fingerprints of values: text that is the same for equal values in every process."""

import functools
import numbers
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import message, text_format

_Describe = Callable[[Any], str]


def describe(value: Any) -> str:
    """Return text that is equal for equal values, in this and any other process.

    The text contains nothing specific to a process: no address, no hash and no set
    order. Numbers are written by value (100 and 100.0 are the same), protocol buffers
    by their fields, and mappings and sets in sorted order. Functions and classes are
    written by qualified name, strategies by class and devices, and other objects by
    class and attributes.

    It cannot distinguish functions of the same name that enclose different variables,
    nor strategies that differ only in their cross-device ops.

    Args:
        value: Any value; an object may contain itself.

    Returns:
        One line of text. It is meant to be compared and to be read by people, not to be
        parsed. It may change from one version of this package to the next.
    """
    return _describe(value, enclosing=())


def _describe(value: Any, enclosing: tuple[Any, ...]) -> str:
    if any(value is outer for outer in enclosing):
        return "..."
    inner = functools.partial(_describe, enclosing=(*enclosing, value))
    for kinds, write in _WRITERS:
        if isinstance(value, kinds):
            return write(value, inner)
    return _write_object(value, inner)


def _write_constant(value: Any, _: _Describe) -> str:
    return repr(value)


def _write_text(value: Any, _: _Describe) -> str:
    return repr(str(value))


def _write_number(value: Any, _: _Describe) -> str:
    if isinstance(value, numbers.Integral):
        return str(int(value))
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def _write_message(value: Any, _: _Describe) -> str:
    fields = text_format.MessageToString(value, as_one_line=True)
    return f"{value.DESCRIPTOR.full_name}({fields.strip()})"


def _write_cluster(value: Any, inner: _Describe) -> str:
    return inner(value.as_dict())


def _write_strategy(value: Any, inner: _Describe) -> str:
    devices = (value.extended.worker_devices, value.extended.parameter_devices)
    return f"{_name(type(value))}{inner(devices)}"


def _write_mapping(value: Any, inner: _Describe) -> str:
    items = sorted((inner(key), inner(item)) for key, item in value.items())
    return f"{{{', '.join(f'{key}: {item}' for key, item in items)}}}"


def _write_set(value: Any, inner: _Describe) -> str:
    return f"{{{', '.join(sorted(map(inner, value)))}}}"


def _write_sequence(value: Any, inner: _Describe) -> str:
    return f"({', '.join(map(inner, value))})"


def _write_partial(value: Any, inner: _Describe) -> str:
    return f"partial{inner((value.func, value.args, value.keywords))}"


def _write_method(value: Any, inner: _Describe) -> str:
    return f"{inner(value.__self__)}.{value.__name__}"


def _write_named(value: Any, _: _Describe) -> str:
    return _name(value)


def _write_object(value: Any, inner: _Describe) -> str:
    # Prefer vars(), because a dataclass's repr may contain a set, in any order.
    if hasattr(value, "__dict__"):
        return f"{_name(type(value))}{_write_mapping(vars(value), inner)}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


# The first match counts, so bool (an int) comes before numbers.
_WRITERS: tuple[tuple[Any, Callable[[Any, _Describe], str]], ...] = (
    ((types.NoneType, bool, bytes), _write_constant),
    (str, _write_text),
    (numbers.Real, _write_number),
    (message.Message, _write_message),
    (tf.train.ClusterSpec, _write_cluster),
    ((tf.distribute.Strategy, tf.compat.v1.distribute.Strategy), _write_strategy),
    (Mapping, _write_mapping),
    ((set, frozenset), _write_set),
    ((list, tuple), _write_sequence),
    (functools.partial, _write_partial),
    (types.MethodType, _write_method),
    ((type, types.FunctionType, types.BuiltinFunctionType), _write_named),
)
