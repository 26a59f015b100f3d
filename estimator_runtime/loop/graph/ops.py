"""What the ops of a graph do, with those of the functions that they call.

What holds for all ops of a type is in `op_kinds`. A loop of steps has copies of the
step's ops, under other names; `op_kinds` says which kinds of ops may be copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from estimator_runtime.tf_internals import graphs, op_kinds
from estimator_runtime.tf_internals.op_kinds import OpKind

# Set on control flow that TensorFlow lowers: its branches become part of the graph.
_LOWERED = "_lower_using_switch_merge"
# The attribute that marks a loop of steps: it has copies of the step, and is no further
# writer.
_LOOP = "_estimator_runtime_loop"


class Executed(NamedTuple):
    """An op of a graph, or of a function that an op calls.

    Attributes:
        kind: What is known about ops of its type.
        op: The op; the NodeDef of an op in a function.
        function: The name of that function; None for an op of the graph.
    """

    kind: OpKind
    op: Any
    function: str | None

    def __str__(self) -> str:
        inside = "" if self.function is None else f" in the function {self.function!r}"
        return f"{self.op.name!r} ({self.kind.name}){inside}"

    @property
    def is_seeded(self) -> bool:
        """Whether it draws the random numbers of a seed that it has."""
        if not self.kind.is_random:
            return False
        node = self.op.node_def if isinstance(self.op, tf.Operation) else self.op
        return bool(node.attr["seed"].i or node.attr["seed2"].i)


def executed(graph: tf.Graph, operations: Collection[tf.Operation]) -> list[Executed]:
    """Return the given ops, and all ops of the functions that they may call.

    A call of a function by its name is left out, as its ops are there.
    """
    functions = called_functions(graph, operations)
    found = [
        Executed(op_kinds.of(op.type), op, None)
        for op in operations
        if op.type not in functions
    ]
    for name, function in sorted(functions.items()):
        found.extend(
            Executed(op_kinds.of(node.op), node, name)
            for node in function.node_def
            if node.op not in functions
        )
    return found


def have_own_state(graph: tf.Graph) -> bool:
    """Return whether kernels of `graph` may keep state that other requests do not see.

    The requests of a session share its kernels, and so the random generators in them.
    TensorFlow instantiates two things again for each request: functions that are not
    inlined, and the branches of control flow that is not lowered. Whether a function is
    inlined depends on the request and on the configuration, so none counts as inlined.
    Control flow that TensorFlow's Python API builds is lowered, unless a function
    contains it.
    """
    library = graphs.functions_of(graph)
    pending = [
        op.node_def
        for op in graph.get_operations()
        if op_kinds.of(op.type).calls_functions
    ]
    lowered: set[str] = set()
    called: set[str] = set()
    while pending:
        node = pending.pop()
        names = {node.op, *_called_by(node)} & library.keys()
        if _LOWERED in node.attr and node.attr[_LOWERED].b:
            for name in names - lowered:
                pending.extend(library[name].cached_definition.node_def)
            lowered |= names
        else:
            called |= names
    return any(
        not each.kind.calls_functions and (each.is_seeded or each.kind.keeps_state)
        for name, function in _reached(library, called).items()
        for each in (Executed(op_kinds.of(n.op), n, name) for n in function.node_def)
    )


def has_only_state(op: tf.Operation) -> bool:
    """Return whether an op has state, or a random sequence, that its copies lack.

    A random op without seeds does not count: it draws anew in each session, so that a
    copy is as good as the op itself.
    """
    return any(e.kind.keeps_state or e.is_seeded for e in executed(op.graph, [op]))


def called_functions(
    graph: tf.Graph, operations: Iterable[tf.Operation]
) -> dict[str, Any]:
    """Return the functions that some ops may call, name to FunctionDef.

    The functions of datasets are left out: they run on threads of their own, and their
    kernels belong to the iterator.
    """
    library = graphs.functions_of(graph)
    calling = [op for op in operations if op_kinds.of(op.type).calls_functions]
    names = {op.type for op in calling if op.type in library}
    names.update(name for op in calling for name in _called_by(op.node_def))
    return _reached(library, names)


def _reached(library: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the named functions and all that they call, name to FunctionDef."""
    found: dict[str, Any] = {}
    pending = set(names)
    while pending:
        name = pending.pop()
        if name in library and name not in found:
            found[name] = library[name].cached_definition
            for node in found[name].node_def:
                pending.update({node.op}, _called_by(node))
    return found


def _called_by(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    """Yield the names of the functions in a node's attributes, but for a dataset's."""
    if "Dataset" in node.op or node.op == "OneShotIterator":
        return
    for attr in node.attr.values():
        if attr.HasField("func"):
            yield attr.func.name
        for function in attr.list.func:
            yield function.name


def mark(op: tf.Operation) -> None:
    """Mark an op as a loop of steps."""
    graphs.set_flag(op, _LOOP)


def users(handle: tf.Tensor) -> list[tf.Operation]:
    """Return the ops that take a handle, also as control flow of TensorFlow 1 does."""
    found: dict[str, tf.Operation] = {}
    pending = [handle]
    while pending:
        for op in pending.pop().consumers():
            if op.name not in found:
                found[op.name] = op
                if op_kinds.of(op.type).passes_handle_on and not _only_reads(op):
                    pending.extend(t for t in op.outputs if t.dtype == tf.resource)
    return [op for op in found.values() if not op_kinds.of(op.type).passes_handle_on]


def may_write(op: tf.Operation) -> bool:
    """Return whether an op that takes a variable may change it, or call what does."""
    if _only_reads(op):
        return False
    functions = called_functions(op.graph, [op])
    # This does not check which of its arguments a function changes.
    return not functions or any(
        kind.writes_variable and not kind.reads_variable
        for kind in _kinds_in(functions)
    )


def may_train(op: tf.Operation) -> bool:
    """Return whether an op that takes a trainable variable may train it."""
    if _only_reads(op):
        return False
    functions = called_functions(op.graph, [op])
    kinds = _kinds_in(functions) if functions else {op_kinds.of(op.type)}
    return any(kind.optimizes or kind.updates for kind in kinds)


def any_trains(graph: tf.Graph, operations: Iterable[tf.Operation]) -> bool:
    """Return whether some op trains.

    An op trains if it is an optimizer's, or if it may change a trainable variable or
    the global step.
    """
    names = tf.compat.v1.GraphKeys
    writing = {
        op.name
        for key in (names.TRAINABLE_VARIABLES, names.GLOBAL_STEP)
        for variable in graph.get_collection(key)
        for replica in _replicas(variable)
        for tensor in replica.op.outputs
        for op in users(tensor)
        if may_write(op)
    }
    return any(
        op_kinds.of(op.type).optimizes or op.name in writing for op in operations
    )


def restores(op: tf.Operation) -> bool:
    """Return whether an op assigns a value that is read from a checkpoint."""
    if not op_kinds.of(op.type).assigns:
        return False
    source = op.inputs[1].op
    while source.type == "Identity":
        source = source.inputs[0].op
    return op_kinds.of(source.type).restores


def _only_reads(op: tf.Operation) -> bool:
    """Return whether an op is a known reader, or marked with `mark`."""
    return op_kinds.of(op.type).reads_variable or _LOOP in op.node_def.attr


def _kinds_in(functions: Mapping[str, Any]) -> set[OpKind]:
    """Return the kinds of ops in functions, name to FunctionDef."""
    return {op_kinds.of(n.op) for f in functions.values() for n in f.node_def}


def _replicas(variable: Any) -> Iterable[Any]:
    """Return the variables that a variable consists of, one for each replica."""
    is_distributed = isinstance(variable, graphs.DistributedVariable)
    return variable.values if is_distributed else [variable]
