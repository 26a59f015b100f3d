"""Former names of TensorFlow and Python, which programs and libraries use."""

import collections
import contextlib
import importlib
import inspect
import types
from typing import Any

_TENSORFLOW = "tensorflow.python"
# Names in private modules of TensorFlow, and where they are now.
FORMER_NAMES = {
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


def restore_private_names(_module: types.ModuleType) -> None:
    """Set former names of TensorFlow's private modules, where their objects exist.

    A test asserts that they exist on each tested TensorFlow. On a newer one, a program
    that does not use a name that has moved again must not fail.
    """
    for owner_name, names in FORMER_NAMES.items():
        for name, source in names.items():
            module_name, _, attribute = source.partition(":")
            with contextlib.suppress(ImportError, AttributeError):
                owner = importlib.import_module(f"{_TENSORFLOW}.{owner_name}")
                module = importlib.import_module(f"{_TENSORFLOW}.{module_name}")
                if not hasattr(owner, name):
                    setattr(owner, name, getattr(module, attribute))


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
