"""What some kernels ask of the way that their step is run, and what they keep."""

import functools

from tensorflow.python.framework import op_def_registry

# Python would see the default graph and session of the calling thread, where on
# TensorFlow's threads there are none; and what waits for another kernel of its step
# must not keep that kernel's thread.
_NEED_POOL = {
    "PyFunc",
    "PyFuncStateless",
    "EagerPyFunc",
    "Stage",
    "StagePeek",
    "Unstage",
    "MapStage",
    "MapPeek",
    "MapUnstage",
    "MapUnstageNoKey",
    "OrderedMapStage",
    "OrderedMapPeek",
    "OrderedMapUnstage",
    "OrderedMapUnstageNoKey",
}
# Stateful control flow, which may be lowered.
_BRANCHING = {"Case", "For", "If", "While"}


def need_pool(graph):
    """Tell whether steps of `graph` must not be run on the calling thread."""
    functions = called_functions(graph)
    types = {op.type for op in graph.get_operations()}
    types.update(node.op for f in functions.values() for node in f.node_def)
    return not _NEED_POOL.isdisjoint(types)


def have_own_state(graph):
    """Tell whether kernels of `graph` keep state that no other request sees.

    Two requests of a session share their kernels, and with them random generators;
    but functions that are not inlined are made anew for each. So are the branches of
    control flow that is not lowered; that of TensorFlow's Python functions is.
    """
    functions = called_functions(graph).values()
    if any(f.attr["_noinline"].b for f in functions):
        return True
    branching = [op.node_def for op in graph.get_operations() if op.type in _BRANCHING]
    for function in functions:
        branching.extend(node for node in function.node_def if node.op in _BRANCHING)
    return any(
        _is_seeded(inner.op)
        for node in branching
        if not node.attr["_lower_using_switch_merge"].b
        for function in _reached(graph._functions, _called_by(node)).values()
        for inner in function.node_def
    )


def with_own_randomness(graph, operations):
    """Give the names of the ops whose kernels draw from a generator of their own.

    A copy of such an op, with the same seeds, starts its random numbers anew. Ops that
    keep their state in a variable, and stateless ones, are not among them.
    """
    return sorted(op.name for op in operations if _draws(graph, op))


def _draws(graph, op):
    functions = called_functions(graph, [op])
    return _is_seeded(op.type) or any(
        _is_seeded(node.op) for f in functions.values() for node in f.node_def
    )


@functools.cache
def _is_seeded(kind):
    """Tell ops that TensorFlow seeds, by the graph's seed and the op's own."""
    definition = op_def_registry.get(kind)  # None for a function
    return (
        definition is not None
        and definition.is_stateful
        and any(attribute.name == "seed2" for attribute in definition.attr)
    )


def called_functions(graph, operations=None):
    """Give the functions that a step of `graph` may call, name to FunctionDef.

    Those that datasets call are not among them: they have threads of their own, and
    their kernels belong to the iterator.

    Args:
        graph: The graph.
        operations: The ops; None for all of the graph.
    """
    operations = graph.get_operations() if operations is None else operations
    library = graph._functions
    pending = {op.type for op in operations if op.type in library}
    calling = {}  # type of ops to whether they name functions
    for op in operations:
        if op.type not in calling:
            calling[op.type] = any("func" in attr.type for attr in op.op_def.attr)
        if calling[op.type]:
            pending.update(_called_by(op.node_def))
    return _reached(library, pending)


def _reached(library, names):
    """Give the functions of these names, and those that they call."""
    found: dict = {}
    pending = set(names)
    while pending:
        name = pending.pop()
        if name in library and name not in found:
            found[name] = library[name].cached_definition
            for node in found[name].node_def:
                pending.update({node.op}, _called_by(node))
    return found


def _called_by(node):
    if "Dataset" in node.op:
        return
    for attr in node.attr.values():
        if attr.HasField("func"):
            yield attr.func.name
        for function in attr.list.func:
            yield function.name
