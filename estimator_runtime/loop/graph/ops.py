"""What single ops do: what they change, where their state is, what their kernels need.

A loop of steps has copies of the step's ops, under other names. TensorFlow marks an op
as stateful without saying where its state is. It may be in a resource: then the copy
takes the same handle and shares the state. Or it may be in the kernel: then the copy
has a new state. So a stateful op is copied only if it is one of TensorFlow's own that
takes a resource, or is known to keep no state. Ops that draw random numbers are an
exception: they keep a generator in the kernel, and `fusion.session` handles them.
"""

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_runtime.tf_internals import internals

# Set on control flow that TensorFlow lowers: its branches become part of the graph.
_LOWERED = "_lower_using_switch_merge"
# Ops that take a resource and do not change it.
READERS = (
    "DisableCopyOnRead",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "VarIsInitializedOp",
    "VariableShape",
)
# Control flow of TensorFlow 1 passes the handle of a resource on to ops inside it.
PASS_ON = frozenset({"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"})
_RESOURCE = tf.resource.as_datatype_enum
_DATASET = re.compile(r"Dataset(V\d+)?$")
# Prefixes of the types of ops that change a variable.
_WRITERS = ("Assign", "Resource")
_OPTIMIZERS = ("Apply", "SparseApply", "ResourceApply", "ResourceSparseApply")
# Prefixes of the types of ops in an update that is written without an optimizer. Plain
# assignments are not updates: they initialize, restore or copy a whole variable.
_UPDATES = ("AssignAdd", "AssignSub", "Scatter", "ResourceScatter")
# Stateful ops that may be copied although they take no resource.
COPYABLE = frozenset(
    """
    AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable
    AnonymousMutableHashTableOfTensors Assert Case CheckNumerics CheckNumericsV2
    ConsumeMutexLock DatasetToSingleElement DeepCopy DeviceIndex EagerPyFunc Empty
    GuaranteeConst If InitializeTableFromDataset LoadAndRemapMatrix MergeV2Checkpoints
    NonDeterministicInts Print PrintV2 PyFunc RangeDataset ReduceDataset RestoreV2
    SaveV2 StatefulPartitionedCall StatelessRandomGetAlg TensorArrayV3 TensorDataset
    TensorSliceDataset Timestamp While WriteFile
    """.split()
)
# Prefixes of stateful ops that never wait for another call, step or task.
_PROMPT = (
    "Assert",
    "Assign",
    "CheckNumerics",
    "LookupTable",
    "Print",
    "ResourceApply",
    "ResourceScatter",
    "ResourceSparseApply",
)
# The attribute that marks a loop of steps, and the ops that are computed after it. They
# are copies of the step and of what hooks ask for, not further writers.
_LOOP = "_estimator_runtime_loop"


def have_own_state(graph: tf.Graph) -> bool:
    """Return whether kernels of `graph` may keep state that other requests do not see.

    The requests of a session share its kernels, and so the random generators in them.
    TensorFlow instantiates two things again for each request: functions that are not
    inlined, and the branches of control flow that is not lowered. Whether a function is
    inlined depends on the request and on the configuration, so none counts as inlined.
    Control flow that TensorFlow's Python API builds is lowered, unless a function
    contains it.
    """
    library = internals.functions_of(graph)
    pending = [op.node_def for op in graph.get_operations() if takes_function(op.type)]
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
        not takes_function(node.op)
        and (_is_seeded_by(node.op, node) or not may_be_copied(node.op))
        for function in _reached(library, called).values()
        for node in function.node_def
    )


def with_own_randomness(
    graph: tf.Graph, operations: Iterable[tf.Operation]
) -> list[str]:
    """Return the names of the ops whose kernel has its own random generator, sorted.

    A copy of such an op, with the same seeds, starts its sequence again. Ops that keep
    their state in a variable, and stateless ops, have no generator in their kernel.
    """
    return sorted(op.name for op in operations if _draws(graph, op))


def _draws(graph: tf.Graph, op: tf.Operation) -> bool:
    """Return whether an op, or a function that it calls, has its own generator."""
    functions = called_functions(graph, [op])
    return _is_seeded(op.type) or any(
        _is_seeded(node.op) for f in functions.values() for node in f.node_def
    )


@functools.cache
def _is_seeded(kind: str) -> bool:
    """Return whether TensorFlow seeds ops of a type, by the graph's seed and theirs."""
    definition = internals.op_definition(kind)  # None for a function
    return (
        definition is not None
        and definition.is_stateful
        and any(attribute.name == "seed2" for attribute in definition.attr)
    )


def find_uncopyable(graph: tf.Graph, operations: Iterable[tf.Operation]) -> str | None:
    """Return a description of the first op that may keep state in its kernel.

    Args:
        graph: The graph of the ops.
        operations: The ops. The functions that they call are checked too.

    Returns:
        A description such as "'lookup' (CountingOp)"; None if all ops may be copied.
    """
    operations = list(operations)
    functions = called_functions(graph, operations)
    for op in operations:
        if op.type not in functions and not may_be_copied(op.type):
            return f"{op.name!r} ({op.type})"
    for name, function in sorted(functions.items()):
        for node in function.node_def:
            if node.op not in functions and not may_be_copied(node.op):
                return f"{node.name!r} ({node.op}) in the function {name!r}"
    return None


def takes_function(kind: str) -> bool:
    """Return whether ops of a type call functions, or are such a call themselves."""
    definition = internals.op_definition(kind)  # None for a function
    return definition is None or any("func" in a.type for a in definition.attr)


@functools.cache
def may_wait(kind: str) -> bool:
    """Return whether an op of this type may wait for another call, step or task.

    Such as one that takes an element from a queue or an iterator. Each stateful op may,
    but for those that are known, and so may any call of Python.
    """
    definition = internals.op_definition(kind)
    if definition is None or takes_function(kind) or kind == "PyFuncStateless":
        return True
    if not definition.is_stateful or kind in READERS or _is_seeded(kind):
        return False
    return not kind.startswith(_PROMPT)


def has_only_state(op: tf.Operation) -> bool:
    """Return whether an op has state, or a random sequence, that its copies lack.

    A random op without seeds does not count: it draws anew in each session, so that a
    copy is as good as the op itself.
    """
    if not takes_function(op.type):
        return not may_be_copied(op.type) or _is_seeded_by(op.type, op.node_def)
    if find_uncopyable(op.graph, [op]) is not None:
        return True
    functions = called_functions(op.graph, [op]).values()
    return any(_is_seeded_by(n.op, n) for f in functions for n in f.node_def)


def _is_seeded_by(kind: str, node: tf.compat.v1.NodeDef) -> bool:
    """Return whether a node draws the random numbers of a seed that it has."""
    return _is_seeded(kind) and bool(node.attr["seed"].i or node.attr["seed2"].i)


def may_be_copied(kind: str) -> bool:
    """Return whether copies of an op of this type have the state of the original."""
    definition = internals.op_definition(kind)
    if definition is None:
        return False
    if not definition.is_stateful or kind in COPYABLE:
        return True
    if not hasattr(tf.raw_ops, kind) or kind.startswith("Collective"):
        return False  # of another package, or it communicates with other tasks
    if _DATASET.search(kind):  # the state of a dataset is in its iterator
        return False
    takes_resource = any(a.type == _RESOURCE for a in definition.input_arg)
    makes_resource = any(a.name == "shared_name" for a in definition.attr)
    return takes_resource or (_is_seeded(kind) and not makes_resource)


def called_functions(
    graph: tf.Graph, operations: Collection[tf.Operation] | None = None
) -> dict[str, Any]:
    """Return the functions that a step of `graph` may call.

    The functions of datasets are left out: they run on threads of their own, and their
    kernels belong to the iterator.

    Args:
        graph: The graph.
        operations: The ops of the step; None for all ops of the graph.

    Returns:
        Name to FunctionDef.
    """
    operations = graph.get_operations() if operations is None else operations
    library = internals.functions_of(graph)
    pending = {op.type for op in operations if op.type in library}
    calling = {}  # type of op to whether its attributes name functions
    for op in operations:
        if op.type not in calling:
            calling[op.type] = any("func" in attr.type for attr in op.op_def.attr)
        if calling[op.type]:
            pending.update(_called_by(op.node_def))
    return _reached(library, pending)


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
    """Mark an op as a loop of steps, or as computed after one."""
    internals.set_flag(op, _LOOP)


def users(handle: tf.Tensor) -> list[tf.Operation]:
    """Return the ops that take a handle, also as control flow of TensorFlow 1 does."""
    found: dict[str, tf.Operation] = {}
    pending = [handle]
    while pending:
        for op in pending.pop().consumers():
            if op.name not in found:
                found[op.name] = op
                if op.type in PASS_ON and not _only_reads(op):
                    pending.extend(t for t in op.outputs if t.dtype == tf.resource)
    return [op for op in found.values() if op.type not in PASS_ON]


def may_write(op: tf.Operation) -> bool:
    """Return whether an op that takes a variable may change it, or call what does."""
    if _only_reads(op):
        return False
    called = _called(op)
    # This does not check which of its arguments a function changes.
    return called is None or any(kind.startswith(_WRITERS) for kind in called)


def is_optimizer(op: tf.Operation) -> bool:
    """Return whether an op is an optimizer's, which trains whatever it takes."""
    return op.type.startswith(_OPTIMIZERS)


def may_train(op: tf.Operation) -> bool:
    """Return whether an op that takes a trainable variable may train it."""
    if _only_reads(op):
        return False
    called = _called(op)
    kinds = {op.type} if called is None else called
    return any(kind.startswith((*_OPTIMIZERS, *_UPDATES)) for kind in kinds)


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
    return any(is_optimizer(op) or op.name in writing for op in operations)


def restores(op: tf.Operation) -> bool:
    """Return whether an op assigns a value that is read from a checkpoint."""
    if not op.type.startswith("Assign"):
        return False
    source = op.inputs[1].op
    while source.type == "Identity":
        source = source.inputs[0].op
    return source.type == "RestoreV2"


def _only_reads(op: tf.Operation) -> bool:
    """Return whether an op is a known reader, or marked with `mark`."""
    return op.type in READERS or _LOOP in op.node_def.attr


def _called(op: tf.Operation) -> set[str] | None:
    """Return the types of ops in the functions that an op calls, without readers.

    The result is None if the op calls no function.
    """
    functions = called_functions(op.graph, [op]).values()
    if not functions:
        return None
    return {node.op for f in functions for node in f.node_def} - set(READERS)


def _replicas(variable: Any) -> Iterable[Any]:
    """Return the variables that a variable consists of, one for each replica."""
    is_distributed = isinstance(variable, internals.DistributedVariable)
    return variable.values if is_distributed else [variable]
