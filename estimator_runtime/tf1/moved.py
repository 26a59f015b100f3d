"""What else has moved since TensorFlow 1: names of TensorFlow, NumPy and Python.

Only names that are absent are set, and only in TensorFlow 1 mode. They are set on the
modules themselves, so libraries of this process see them too.
"""

import collections
import collections.abc
import contextlib
import functools
import importlib
import importlib.util
import inspect
import sys
import time
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from estimator_runtime.errors import ConfigError
from estimator_runtime.tf1 import mode

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
# Names of TensorFlow's private modules that programs import, and where they are now.
_PRIVATE = {
    "framework.graph_util": {
        "convert_variables_to_constants": (
            "framework.convert_to_constants:convert_variables_to_constants"
        ),
    },
    "framework.ops": {
        "IndexedSlices": "framework.indexed_slices:IndexedSlices",
        "IndexedSlicesValue": "framework.indexed_slices:IndexedSlicesValue",
        "Tensor": "framework.tensor:Tensor",
        "convert_n_to_tensor_or_indexed_slices": (
            "framework.indexed_slices:convert_n_to_tensor_or_indexed_slices"
        ),
        "convert_to_tensor": "framework.tensor_conversion:convert_to_tensor_v2",
        "convert_to_tensor_or_indexed_slices": (
            "framework.indexed_slices:convert_to_tensor_or_indexed_slices"
        ),
        "internal_convert_to_tensor": "framework.tensor_conversion_registry:convert",
        "internal_convert_to_tensor_or_indexed_slices": (
            "framework.indexed_slices:internal_convert_to_tensor_or_indexed_slices"
        ),
        "register_tensor_conversion_function": (
            "framework.tensor_conversion_registry:register_tensor_conversion_function"
        ),
    },
    "ops.array_ops": {
        "stack": "ops.array_ops_stack:stack",
        "unstack": "ops.array_ops_stack:unstack",
    },
    "ops.control_flow_ops": {
        "Assert": "ops.control_flow_assert:Assert",
        "case": "ops.control_flow_case:case",
        "cond": "ops.cond:cond",
        "switch_case": "ops.control_flow_switch_case:switch_case",
        "while_loop": "ops.while_loop:while_loop",
    },
    "ops.functional_ops": {"map_fn": "ops.map_fn:map_fn"},
    "ops.variable_scope": {"variable": "ops.variable_v1:VariableV1"},
    "ops.variables": {
        "RefVariable": "ops.ref_variable:RefVariable",
        "VariableV1": "ops.variable_v1:VariableV1",
        "is_variable_initialized": "ops.variable_v1:is_variable_initialized",
    },
    "pywrap_tensorflow": {
        "NewCheckpointReader": "training.py_checkpoint_reader:NewCheckpointReader",
    },
    "util.nest": {"is_sequence": "util.nest:is_nested"},
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

# The full names that programs find again in TensorFlow 1 mode.
RESTORED = (
    *(
        f"{_TENSORFLOW}.{owner}.{name}"
        for owner in _PRIVATE
        for name in _PRIVATE[owner]
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
    if mode.has_resource_variables():
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
            f"({mode.RESOURCES_VARIABLE}) is on; leave that out, or feed a "
            "tf.placeholder_with_default in place of the variable"
        )

    # Not as one tuple, which TensorFlow would compare with the next class registered.
    kinds = resource_variable_ops.BaseResourceVariable, values.DistributedVariable
    for kind in kinds:
        session.register_session_run_conversion_functions(kind, as_ever, refuse, refuse)


def restore_private_names(_module: types.ModuleType) -> None:
    """Set former names of TensorFlow's private modules, where their objects exist.

    A test asserts that they exist on each tested TensorFlow. On a newer one, a program
    that does not use a name that has moved again must not fail.
    """
    for owner_name, names in _PRIVATE.items():
        for name, source in names.items():
            module_name, _, attribute = source.partition(":")
            with contextlib.suppress(ImportError, AttributeError):
                owner = importlib.import_module(f"{_TENSORFLOW}.{owner_name}")
                module = importlib.import_module(f"{_TENSORFLOW}.{module_name}")
                if not hasattr(owner, name):
                    setattr(owner, name, getattr(module, attribute))


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
    restore_getargspec(_module)
    if not hasattr(time, "clock"):
        vars(time)["clock"] = time.process_time
    sys.meta_path.append(_FormerModules())


def restore_getargspec(_module: types.ModuleType) -> None:
    """Set `inspect.getargspec`, which Python 3.11 removed."""
    if not hasattr(inspect, "getargspec"):
        vars(inspect)["getargspec"] = _getargspec


_ArgSpec = collections.namedtuple("_ArgSpec", "args varargs keywords defaults")


def _getargspec(function: Any) -> Any:
    found = inspect.getfullargspec(function)
    if found.kwonlyargs:
        raise ValueError(
            "Function has keyword-only parameters; use inspect.signature() instead"
        )
    return _ArgSpec(*found[:4])


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
            return ModuleSpec(fullname, _ByName("estimator_runtime.tf1.imp"))
        if fullname in _FORMER_NAMES:
            return ModuleSpec(fullname, _ByName(_FORMER_NAMES[fullname]))
        return None


class _ByName(Loader):
    """Loads a module by importing one of another name in its place."""

    def __init__(self, name: str) -> None:
        self._name = name

    def exec_module(self, module: types.ModuleType) -> None:
        """Replace `module` in `sys.modules` with the other one."""
        sys.modules[module.__name__] = importlib.import_module(self._name)
