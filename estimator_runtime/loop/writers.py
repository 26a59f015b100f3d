"""Ops that change variables, and those that only read them."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.distribute import values as distributed

from estimator_runtime.loop import kernels

# What takes a resource and leaves it as it is.
READERS = (
    "DisableCopyOnRead",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "VarIsInitializedOp",
    "VariableShape",
)
# How the types of ops begin that change a variable.
_WRITERS = ("Assign", "Resource")
_OPTIMIZERS = ("Apply", "SparseApply", "ResourceApply", "ResourceSparseApply")
# What an update is made of that is written without these. What initializes a variable,
# restores it or takes it from elsewhere assigns it as a whole.
_UPDATES = ("AssignAdd", "AssignSub", "Scatter", "ResourceScatter")
# What marks a loop of steps, and what is computed after it: they are one more copy of
# the step and of what hooks ask for, not another writer.
_LOOP = "_estimator_runtime_loop"


def mark(op):
    """Mark an op as a loop of steps, or as what is computed after it."""
    op._set_attr(_LOOP, attr_value_pb2.AttrValue(b=True))


def may_write(op):
    """Tell whether an op that takes a variable may change it, itself or in a call."""
    if _only_reads(op):
        return False
    called = _called(op)
    # Which of its arguments a function changes is not looked at.
    return called is None or any(kind.startswith(_WRITERS) for kind in called)


def is_optimizer(op):
    """Tell whether an op is one that trains, whatever it takes."""
    return op.type.startswith(_OPTIMIZERS)


def may_train(op):
    """Tell whether an op that takes a trainable variable may train it."""
    if _only_reads(op):
        return False
    called = _called(op)
    kinds = {op.type} if called is None else called
    return any(kind.startswith((*_OPTIMIZERS, *_UPDATES)) for kind in kinds)


def any_trains(graph: tf.Graph, operations: Iterable[tf.Operation]) -> bool:
    """Return whether some op trains: by an optimizer, or by changing what is trained.

    The global step counts as that.
    """
    names = tf.compat.v1.GraphKeys
    handles = {
        tensor.name
        for key in (names.TRAINABLE_VARIABLES, names.GLOBAL_STEP)
        for variable in graph.get_collection(key)
        for replica in _replicas(variable)
        for tensor in replica.op.outputs
    }
    return any(
        is_optimizer(op)
        or (may_write(op) and any(tensor.name in handles for tensor in op.inputs))
        for op in operations
    )


def restores(op):
    """Tell whether an op assigns what is read from a checkpoint."""
    if not op.type.startswith("Assign"):
        return False
    source = op.inputs[1].op
    while source.type == "Identity":
        source = source.inputs[0].op
    return source.type == "RestoreV2"


def _only_reads(op):
    return op.type in READERS or _LOOP in op.node_def.attr


def _called(op):
    """Give the types of ops in the functions that an op calls; None if in none."""
    functions = kernels.called_functions(op.graph, [op]).values()
    if not functions:
        return None
    return {node.op for f in functions for node in f.node_def} - set(READERS)


def _replicas(variable: Any) -> Iterable[Any]:
    is_distributed = isinstance(variable, distributed.DistributedVariable)
    return variable.values if is_distributed else [variable]
