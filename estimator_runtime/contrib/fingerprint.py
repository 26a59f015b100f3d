"""Text that tells values apart, the same for equal values in every process."""

import functools
import numbers
import re
import types
from collections.abc import Mapping

import tensorflow as tf
from google.protobuf import message, text_format


def describe(value):
    """Write `value` so that equal values give equal text, here and in any process.

    Nothing of a single process gets in: no address, no hash, no order of a set.
    Numbers are written by their value (100 and 100.0 are the same), protocol
    buffers by their fields, mappings and sets in order, functions and classes by
    their qualified name, strategies by their class and devices, other objects by
    their class and attributes.

    What it cannot tell apart: functions of the same name that enclose different
    variables, and strategies that differ in nothing but their cross-device ops.

    Args:
        value: Anything; an object may contain itself.

    Returns:
        One line of text. It is meant for comparison and for the eye, not to be
        parsed, and may change from one version of this package to the next.
    """
    return _describe(value, enclosing=())


def _describe(value, enclosing):
    if any(value is outer for outer in enclosing):
        return "..."
    inner = functools.partial(_describe, enclosing=(*enclosing, value))
    for kinds, write in _WRITERS:
        if isinstance(value, kinds):
            return write(value, inner)
    return _write_object(value, inner)


def _write_constant(value, _):
    return repr(value)


def _write_text(value, _):
    return repr(str(value))


def _write_number(value, _):
    if isinstance(value, numbers.Integral):
        return str(int(value))
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def _write_message(value, _):
    fields = text_format.MessageToString(value, as_one_line=True)
    return f"{value.DESCRIPTOR.full_name}({fields.strip()})"


def _write_cluster(value, inner):
    return inner(value.as_dict())


def _write_strategy(value, inner):
    devices = (value.extended.worker_devices, value.extended.parameter_devices)
    return f"{_name(type(value))}{inner(devices)}"


def _write_mapping(value, inner):
    items = sorted((inner(key), inner(item)) for key, item in value.items())
    return f"{{{', '.join(f'{key}: {item}' for key, item in items)}}}"


def _write_set(value, inner):
    return f"{{{', '.join(sorted(map(inner, value)))}}}"


def _write_sequence(value, inner):
    return f"({', '.join(map(inner, value))})"


def _write_partial(value, inner):
    return f"partial{inner((value.func, value.args, value.keywords))}"


def _write_method(value, inner):
    return f"{inner(value.__self__)}.{value.__name__}"


def _write_named(value, _):
    return _name(value)


def _write_object(value, inner):
    # vars() first: a dataclass's repr may contain a set, in any order.
    if hasattr(value, "__dict__"):
        return f"{_name(type(value))}{_write_mapping(vars(value), inner)}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))


def _name(value):
    return f"{value.__module__}.{value.__qualname__}"


# The first that fits counts, so bool (an int) comes before numbers.
_WRITERS = (
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
