"""The state that ops of a graph keep: in variables, in tables or in their kernels."""

import collections
import os
from collections.abc import Iterable, Mapping

import tensorflow as tf

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import keeps_resource
from estimator_runtime.tf_internals import graphs, op_kinds


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
    return any(e.kind.calls_python for e in ops.executed(graph, part.values()))


def is_only_in_variables(graph: tf.Graph, part: Mapping[str, tf.Operation]) -> bool:
    """Return whether ops keep no state in a session except in variables.

    Args:
        graph: The graph.
        part: The ops by name. The functions that they call are looked at too.
    """
    return all(
        each.kind.leaves_session_as_new or each.kind.is_free_of_state
        for each in ops.executed(graph, part.values())
    )


def changed_variables(part: Mapping[str, tf.Operation]) -> set[str]:
    """Return the names of the variable ops whose variables some ops may change."""
    return {
        maker
        for op in part.values()
        for tensor in _changed_inputs(op)
        for maker in variables_of([tensor.op])
    }


def _changed_inputs(op: tf.Operation) -> list[tf.Tensor]:
    if any(argument.is_ref for argument in op.op_def.input_arg):
        return [tensor for tensor in op.inputs if graphs.is_reference(tensor)]
    kind = op_kinds.of(op.type)
    if kind.passes_handle_on or kind.is_of_table:
        return []
    handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    return handles if handles and ops.may_write(op) else []


def acts(op: tf.Operation) -> bool:
    """Return whether an op may change a variable, or has another effect or state."""
    if _changed_inputs(op):
        return True
    is_harmless = not op.op_def.is_stateful or keeps_resource(op)
    return not is_harmless and not is_only_in_variables(op.graph, {op.name: op})


def variables_of(operations: Iterable[tf.Operation]) -> set[str]:
    """Return the names of the variable ops that some ops depend on."""
    found = reached(operations)
    return {n for n, op in found.items() if op_kinds.of(op.type).is_variable}


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
        kind = op_kinds.of(op.type)
        if kind.initializes_table:
            if "File" in op.type:
                name = tf.get_static_value(op.inputs[1])
                if name is None:
                    return None
                names.append(
                    os.fsdecode(name.item() if hasattr(name, "item") else name)
                )
        elif not (kind.is_table or kind.is_free_of_state):
            return None
    return sorted(names)
