"""The order in which a step runs its ops, and uses the resources that it changes."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import Subgraph


def predecessors(op: tf.Operation) -> list[tf.Operation]:
    """Return the ops that an op depends on directly."""
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def ordered(operations: Mapping[str, tf.Operation]) -> list[tf.Operation]:
    """Return the given ops in an order in which each follows those it depends on.

    Args:
        operations: The ops by name. There is no loop of TensorFlow 1 among them.
    """
    done: dict[str, tf.Operation] = {}
    for first in operations.values():
        stack = [first]
        while stack:
            op = stack[-1]
            waiting = [
                before
                for before in predecessors(op)
                if before.name in operations and before.name not in done
            ]
            if waiting:
                stack.extend(waiting)
            else:
                done.setdefault(op.name, op)
                stack.pop()
    return list(done.values())


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
                if any(e.kind.may_change for e in ops.executed(op.graph, [op])):
                    changers.setdefault(key, set()).add(name)
    pairs = sorted(
        (user, changer)
        for key, changing in changers.items()
        for changer in changing
        for user in users[key] - {changer}
    )
    if not pairs:
        return None
    bits = {name: 1 << i for i, name in enumerate({n for pair in pairs for n in pair})}
    needed: dict[str, int] = {}  # the bits of the ops that an op needs, by its name
    for op in ordered(step.ops):
        needed[op.name] = 0
        for before in predecessors(op):
            needed[op.name] |= needed.get(before.name, 0) | bits.get(before.name, 0)
    for user, changer in pairs:
        if not (needed[user] & bits[changer] or needed[changer] & bits[user]):
            return user
    return None


def _key(handle: tf.Tensor) -> str:
    """Return what identifies the resource of a handle: two ops may return the same."""
    while handle.op.type == "Identity":
        handle = handle.op.inputs[0]
    if "shared_name" in handle.op.node_def.attr:
        shared: bytes = handle.op.get_attr("shared_name")
        return shared.decode() or handle.name
    return handle.name
