"""The state that ops of a graph keep: in variables, in tables or in their kernels."""

import collections
import os
from collections.abc import Iterable, Mapping

import tensorflow as tf

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import keeps_resource
from estimator_runtime.tf_internals import graphs

# Types of stateful ops whose state is in variables, in tables that nobody changes, in
# the call itself or outside the session.
_ALLOWED = {
    *"""
    AssignAddVariableOp AssignSubVariableOp AssignVariableOp DisableCopyOnRead
    ReadVariableOp ResourceGather ResourceGatherNd ResourceScatterAdd
    ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul
    ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
    ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub
    ResourceScatterUpdate ResourceStridedSliceAssign VarHandleOp VarIsInitializedOp
    Variable VariableShape VariableV2
    """.split(),
    *"""
    HashTable HashTableV2 LookupTableFind LookupTableFindV2 LookupTableSize
    LookupTableSizeV2
    """.split(),
    *"""
    TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayReadV3
    TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3
    TensorArrayWriteV3
    """.split(),
    *"""
    Assert CheckNumerics CheckNumericsV2 DeviceIndex Empty GuaranteeConst Placeholder
    Print PrintV2 Timestamp
    """.split(),
    *"""
    Case If PartitionedCall StatefulPartitionedCall While
    """.split(),
}
# Not stateful by their definition, but their values come from files or a dataset.
_DENIED = ("Dataset", "Iterator", "ReadFile", "MatchingFiles")
_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}
_VARIABLES = {"VarHandleOp", "Variable", "VariableV2"}
_TABLES = {"HashTable", "HashTableV2"}
_TABLE_INITIALIZERS = {
    "InitializeTable",
    "InitializeTableV2",
    "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2",
}


def reached(operations: Iterable[tf.Operation]) -> dict[str, tf.Operation]:
    """Return ops and all that they need, by name."""
    found: dict[str, tf.Operation] = {}
    pending = list(operations)
    while pending:
        op = pending.pop()
        if op.name not in found:
            found[op.name] = op
            pending.extend(tensor.op for tensor in op.inputs)
            pending.extend(op.control_inputs)
    return found


def following(part: Mapping[str, tf.Operation], first: Iterable[str]) -> set[str]:
    """Return the names of some ops of `part`, and of all ops in it that need them."""
    users = collections.defaultdict(list)
    for name, op in part.items():
        for before in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
            users[before.name].append(name)
    found: set[str] = set()
    pending = list(first)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(users[name])
    return found


def calls_python(graph: tf.Graph, part: Mapping[str, tf.Operation]) -> bool:
    """Return whether ops call functions of the program, which may keep any state.

    Args:
        graph: The graph.
        part: The ops by name. The functions that they call are looked at too.
    """
    return not _PYTHON.isdisjoint(_types(graph, part))


def is_only_in_variables(graph: tf.Graph, part: Mapping[str, tf.Operation]) -> bool:
    """Return whether ops keep no state in a session except in variables.

    Args:
        graph: The graph.
        part: The ops by name. The functions that they call are looked at too.
    """
    functions = ops.called_functions(graph, part.values())
    return all(kind in functions or _may_stay(kind) for kind in _types(graph, part))


def _types(graph: tf.Graph, part: Mapping[str, tf.Operation]) -> set[str]:
    functions = ops.called_functions(graph, part.values())
    types = {op.type for op in part.values()}
    return types.union(node.op for f in functions.values() for node in f.node_def)


def _may_stay(kind: str) -> bool:
    return kind in _ALLOWED or _is_stateless(kind)


def _is_stateless(kind: str) -> bool:
    if any(word in kind for word in _DENIED):
        return False
    definition = graphs.op_definition(kind)
    return definition is not None and not definition.is_stateful


def changed_variables(part: Mapping[str, tf.Operation]) -> set[str]:
    """Return the names of the variable ops whose variables some ops may change."""
    return {
        maker
        for op in part.values()
        for tensor in _changed_inputs(op)
        for maker in _makers(tensor)
    }


def _changed_inputs(op: tf.Operation) -> list[tf.Tensor]:
    if any(argument.is_ref for argument in op.op_def.input_arg):
        return [tensor for tensor in op.inputs if graphs.is_reference(tensor)]
    if op.type in ops.PASS_ON or op.type.startswith("LookupTable"):
        return []
    handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    return handles if handles and ops.may_write(op) else []


def acts(op: tf.Operation) -> bool:
    """Return whether an op may change a variable, or has another effect or state."""
    if _changed_inputs(op):
        return True
    is_harmless = not op.op_def.is_stateful or keeps_resource(op)
    return not is_harmless and not is_only_in_variables(op.graph, {op.name: op})


def _makers(tensor: tf.Tensor) -> set[str]:
    """Return the names of the variable ops that a tensor depends on."""
    return {name for name, op in reached([tensor.op]).items() if op.type in _VARIABLES}


def variables_of(operations: Iterable[tf.Operation]) -> set[str]:
    """Return the names of the variable ops that some ops depend on."""
    found = reached(operations)
    return {name for name, op in found.items() if op.type in _VARIABLES}


def table_files(initializer: tf.Operation | None) -> list[str] | None:
    """Return the files that tables are initialized from.

    Args:
        initializer: The op that initializes all tables, or None if there is none.

    Returns:
        Their names; None if a table may come from something else than constants and
        files.
    """
    names = []
    for op in reached([] if initializer is None else [initializer]).values():
        if op.type in _TABLE_INITIALIZERS:
            if "File" in op.type:
                name = tf.get_static_value(op.inputs[1])
                if name is None:
                    return None
                names.append(
                    os.fsdecode(name.item() if hasattr(name, "item") else name)
                )
        elif op.type not in _TABLES and not _is_stateless(op.type):
            return None
    return sorted(names)
