"""The order in which the ops of a step use the resources that the step changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import tensorflow as tf

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import Subgraph
from estimator_runtime.tf_internals import internals

# Types of ops that change nothing that another op reads. Summaries are only written.
_READERS = re.compile(
    rf"LookupTable(Find|Size)|Write\w*Summary$|({'|'.join(ops.READERS)})$"
)


def find_unordered(step: Subgraph) -> str | None:
    """Return the name of an op that a step runs in no order with a change, or None.

    Such an op takes a resource, such as a variable or an iterator, that another op of
    the step changes, and neither op needs the other. Which of them runs first depends
    on the threads that run the step.

    Args:
        step: The part of the graph that is the step.
    """
    users: dict[str, set[str]] = {}
    changers: dict[str, set[str]] = {}
    for name, op in step.ops.items():
        for tensor in op.inputs:
            if tensor.dtype == tf.resource:
                key = _key(tensor)
                users.setdefault(key, set()).add(name)
                if _may_change(op):
                    changers.setdefault(key, set()).add(name)
    pairs = sorted(
        (user, changer)
        for key, changing in changers.items()
        for changer in changing
        for user in users[key] - {changer}
    )
    if not pairs:
        return None
    needs = _needs(step, {name for pair in pairs for name in pair})
    for user, changer in pairs:
        if not (needs(user, changer) or needs(changer, user)):
            return user
    return None


def longest_path(step: Subgraph) -> int:
    """Return the largest number of ops of a step each of which needs the one before.

    Args:
        step: The part of the graph that is the step. It has no loop of TensorFlow 1.
    """
    lengths: dict[str, int] = {}
    for name, before in _in_order(step):
        lengths[name] = 1 + max((lengths[each] for each in before), default=0)
    return max(lengths.values(), default=0)


def _key(handle: tf.Tensor) -> str:
    """Return what identifies the resource of a handle: two ops may return the same."""
    while handle.op.type == "Identity":
        handle = handle.op.inputs[0]
    if "shared_name" in handle.op.node_def.attr:
        shared: bytes = handle.op.get_attr("shared_name")
        return shared.decode() or handle.name
    return handle.name


def _may_change(op: tf.Operation) -> bool:
    """Return whether an op, or a function that it calls, may change what it takes."""
    functions = {}
    if ops.takes_function(op.type):
        functions = ops.called_functions(op.graph, [op])
    kinds = {node.op for f in functions.values() for node in f.node_def} or {op.type}
    return any(_takes_resource(kind) and not _READERS.match(kind) for kind in kinds)


def _takes_resource(kind: str) -> bool:
    """Return whether ops of a type, but for calls of functions, take a resource."""
    definition = internals.op_definition(kind)
    return definition is not None and any(
        argument.type == tf.resource.as_datatype_enum
        for argument in definition.input_arg
    )


def _needs(step: Subgraph, names: set[str]) -> Callable[[str, str], bool]:
    """Return a function that says whether one op needs another, both of `names`."""
    bits = {name: 1 << i for i, name in enumerate(sorted(names))}
    needed: dict[str, int] = {}  # the bits of the ops that an op needs, by its name
    for name, before in _in_order(step):
        needed[name] = 0
        for each in before:
            needed[name] |= needed[each] | bits.get(each, 0)
    return lambda name, other: bool(needed[name] & bits[other])


def _in_order(step: Subgraph) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each op with those of the ops that it takes or waits for.

    Those come before it. Ops outside the step are left out.
    """
    done: set[str] = set()
    pending = list(step.ops)
    while pending:
        name = pending[-1]
        if name in done:
            pending.pop()
            continue
        op = step.ops[name]
        before = {t.op.name for t in op.inputs}.union(c.name for c in op.control_inputs)
        before &= step.ops.keys()
        waiting = before - done
        if waiting:
            pending.extend(waiting)
            continue
        done.add(name)
        pending.pop()
        yield name, before
