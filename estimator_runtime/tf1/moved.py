"""What else has moved since TensorFlow 1: names of TensorFlow, NumPy and Python.

Only names that are absent are set, and only in TensorFlow 1 mode. They are set on the
modules themselves, so libraries of this process see them too.
"""

import collections
import collections.abc
import functools
import sys
import time
import types
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from estimator_runtime.config import tf1_mode
from estimator_runtime.errors import ConfigError
from estimator_runtime.tf1.alias import Alias
from estimator_runtime.tf_internals import former_names

# NumPy's own names for Python's types, which it removed in 1.24 and 2.0.
_TYPES = {
    "bool": bool,
    "complex": complex,
    "float": float,
    "int": int,
    "long": int,
    "object": object,
    "str": str,
    "unicode": str,
}
# Removed names, and those that NumPy has for the same.
_RENAMED_IN_NUMPY = {
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "NAN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "infty": "inf",
    "product": "prod",
    "round_": "round",
    "row_stack": "vstack",
    "sometrue": "any",
    "string_": "bytes_",
    "trapz": "trapezoid",
    "unicode_": "str_",
}
_TENSORFLOW = "tensorflow.python"
# Former names of modules, and the modules that have their contents now. The first is
# for TensorFlow's own tensorflow.python.layers.
_FORMER_NAMES = {
    "tf_keras.legacy_tf_layers": "tf_keras.src.legacy_tf_layers",
    f"{_TENSORFLOW}.training.device_util": f"{_TENSORFLOW}.distribute.device_util",
    f"{_TENSORFLOW}.training.distribute": f"{_TENSORFLOW}.distribute.distribute_lib",
    f"{_TENSORFLOW}.training.distribution_strategy_context": (
        f"{_TENSORFLOW}.distribute.distribute_lib"
    ),
    f"{_TENSORFLOW}.training.saver_pb2": "tensorflow.core.protobuf.saver_pb2",
    f"{_TENSORFLOW}.training.training_ops": f"{_TENSORFLOW}.ops.gen_training_ops",
}

# The full names that programs find again in TensorFlow 1 tf1_mode.
RESTORED = (
    *(
        f"{_TENSORFLOW}.{owner}.{name}"
        for owner in former_names.FORMER_NAMES
        for name in former_names.FORMER_NAMES[owner]
    ),
    *_FORMER_NAMES,
)


def use_version_1(_module: types.ModuleType) -> None:
    """Turn on the behaviour of TensorFlow 1, with its reference variables.

    The mode's option makes them resource variables, as everywhere in TensorFlow 2.
    """
    import tensorflow.compat.v1 as tf1
    from tensorflow.python.util import deprecation

    with deprecation.silence():  # of disable_resource_variables
        tf1.disable_v2_behavior()
    if tf1_mode.has_resource_variables():
        tf1.enable_resource_variables()
        _refuse_feeds_of_variables()


def _refuse_feeds_of_variables() -> None:
    """Make a session raise an error for a feed whose key is a resource variable.

    Of all reads of the variable, the feed would replace one that hardly any op takes.
    """
    from tensorflow.python.client import session
    from tensorflow.python.distribute import values
    from tensorflow.python.ops import resource_variable_ops

    def as_ever(variable: Any) -> Any:
        return [variable], lambda fetched: fetched[0]

    def refuse(variable: Any, _value: Any = None) -> Any:
        raise ConfigError(
            f"feed_dict: the key is the variable {variable.name!r}, whose reads a feed "
            "does not replace, because --tf1-resource-variables "
            f"({tf1_mode.RESOURCES_VARIABLE}) is on; leave that out, or feed a "
            "tf.placeholder_with_default in place of the variable"
        )

    # Not as one tuple, which TensorFlow would compare with the next class registered.
    kinds = resource_variable_ops.BaseResourceVariable, values.DistributedVariable
    for kind in kinds:
        session.register_session_run_conversion_functions(kind, as_ever, refuse, refuse)


def restore_numpy_names(numpy: types.ModuleType) -> None:
    """Set the names that NumPy 1.24 and 2.0 removed, and what `fromstring` did."""
    # Not hasattr, as NumPy's __getattr__ warns.
    names = vars(numpy)
    for name, value in _TYPES.items():
        names.setdefault(name, value)
    for name, current in _RENAMED_IN_NUMPY.items():
        if current in names:
            names.setdefault(name, names[current])
    names.setdefault("NINF", -names["inf"])
    names.setdefault("asscalar", lambda a: a.item())
    names.setdefault("asfarray", lambda a, dtype=float: numpy.asarray(a, dtype))
    names.setdefault("mat", numpy.asmatrix)
    names["fromstring"] = _with_binary_mode(numpy)


def _with_binary_mode(numpy: Any) -> Any:
    original = numpy.fromstring

    @functools.wraps(original)
    def fromstring(
        string: Any, dtype: Any = float, count: int = -1, sep: str = "", **like: Any
    ) -> Any:
        if sep == "" and not isinstance(string, str):
            # A copy, as before: what frombuffer returns cannot be written.
            return numpy.frombuffer(string, dtype, count).copy()
        return original(string, dtype, count, sep=sep, **like)

    return fromstring


def restore_python_names(_module: types.ModuleType) -> None:
    """Set names that Python 3.8 to 3.12 removed, and find the module `imp`."""
    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    former_names.restore_getargspec(_module)
    if not hasattr(time, "clock"):
        vars(time)["clock"] = time.process_time
    sys.meta_path.append(_FormerModules())


class _FormerModules(MetaPathFinder):
    """Finds modules by former names, if nothing else has found them."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of the module that has the name now, or None."""
        if fullname == "imp":
            return ModuleSpec(fullname, Alias("estimator_runtime.tf1.imp"))
        if fullname in _FORMER_NAMES:
            return ModuleSpec(fullname, Alias(_FORMER_NAMES[fullname]))
        return None
