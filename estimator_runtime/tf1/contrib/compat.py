"""Functions of TensorFlow 1.15 that `tf.contrib` calls, as they are needed today."""

import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_v1
from tensorflow.python.util import all_util

_F = TypeVar("_F", bound=Callable[..., Any])


def do_nothing(*_args: object, **_kwargs: object) -> None:
    """Stand for a function that registers something that needs no registration."""


def RegisterShape(_name: str) -> Callable[[_F], _F]:
    """Return a decorator that ignores a function of shapes: ops have theirs in C++."""
    return lambda function: function


class RegisterGradient:
    """`ops.RegisterGradient`, which keeps the gradient that an op has today.

    Args:
        op_type: Name of the op.
    """

    def __init__(self, op_type: str) -> None:
        self._op_type = op_type

    def __call__(self, function: _F) -> _F:
        """Register the function, unless the op has one."""
        try:
            return ops.RegisterGradient(self._op_type)(function)
        except KeyError:
            return function


def remove_undocumented(
    module_name: str,
    allowed_exception_list: Sequence[str] | None = None,
    doc_string_modules: Sequence[Any] | None = None,
) -> None:
    """Remove names of a module of `tf.contrib`, but none of TensorFlow's own modules.

    `contrib.framework` does that to `nest`.
    """
    if module_name.startswith("tensorflow.contrib"):
        all_util.remove_undocumented(
            module_name, allowed_exception_list, doc_string_modules
        )


def variable(*args: Any, **kwargs: Any) -> Any:
    """Return a variable; with `validate_shape=False`, its shape is unknown.

    A resource variable has the shape of its first value, unless it is told otherwise.
    """
    if kwargs.get("validate_shape") is False and kwargs.get("shape") is None:
        kwargs["shape"] = tf.TensorShape(None)
    return variable_v1.VariableV1(*args, **kwargs)


def load_op_library(_path: str) -> types.ModuleType:
    """Return an empty module for a library in C++; see `ops` for what is used of it."""
    return types.ModuleType("tf.contrib's library")
