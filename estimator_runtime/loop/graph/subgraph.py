"""A part of a graph, such as a training step."""

from __future__ import annotations

from collections.abc import Container, Iterable

import tensorflow as tf

from estimator_runtime.loop.graph import ops
from estimator_runtime.tf_internals import graphs, op_kinds

tf1 = tf.compat.v1
# What an op may be or do that cannot be in a loop, as an attribute of `OpKind`.
_OBSTACLES = {
    "is_placeholder": "reads a placeholder",
    "calls_python": "calls Python",
    "is_control_flow_v1": "has control flow of TensorFlow 1",
    "communicates": "communicates with other workers",
    "keeps_state": "has an op that may keep state of its own",
}


class CannotFuse(Exception):
    """A step cannot be in a loop; the message completes "because the step ..."."""


class Subgraph:
    """Some ops of a graph and all ops that they need, except those of resources.

    Ops that create a shared resource, such as a variable, stay outside the part.

    Args:
        graph: The graph.
        roots: The ops that the part is for.
        without: Names of ops that stay outside the part.

    Attributes:
        graph: The graph.
        ops: The ops by name.
        handles: Handles of resources that the ops take, by tensor name.
    """

    def __init__(
        self,
        graph: tf.Graph,
        roots: Iterable[tf.Operation],
        without: Container[str] = frozenset(),
    ) -> None:
        self.graph = graph
        self.ops: dict[str, tf.Operation] = {}
        pending = list(roots)
        while pending:
            op = pending.pop()
            if op.name in self.ops or op.name in without:
                continue
            if not _is_resource(op):
                self.ops[op.name] = op
                pending.extend(tensor.op for tensor in op.inputs)
                pending.extend(op.control_inputs)
        inputs = (tensor for op in self.ops.values() for tensor in op.inputs)
        outside = {t.name: t for t in inputs if t.op.name not in self.ops}
        self.handles = {n: t for n, t in outside.items() if _is_resource(t.op)}

    def waiting_handle(self) -> str | None:
        """Return the name of an op of a resource that waits for other ops, or None.

        A copy of the part takes the resource from that op. If the ops that it waits for
        are copied too, both they and their copies run.
        """
        waiting = [t.op.name for t in self.handles.values() if t.op.control_inputs]
        return min(waiting, default=None)

    def check_fusable(self) -> None:
        """Raise CannotFuse if an op cannot be in a loop."""
        if waiting := self.waiting_handle():
            raise CannotFuse(f"has a resource that waits for other ops, {waiting!r}")
        for op in self.ops.values():
            if has_reference(op):
                raise CannotFuse(f"has {reference_variable(op.name)}")
            if keeps_resource(op):
                raise CannotFuse(f"computes what {op.name!r} is made of")
        for each in ops.executed(self.graph, self.ops.values()):
            for fact, reason in _OBSTACLES.items():
                if getattr(each.kind, fact):
                    raise CannotFuse(f"{reason}, {each}")

    def check_alone(self) -> None:
        """Raise CannotFuse if the program has another step to take turns with.

        That is an op outside this part that trains: one of an optimizer, or one that
        adds to a trainable variable or subtracts from it.
        """
        variables = self.graph.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES)
        uses = [
            op
            for variable in variables
            for tensor in variable.op.outputs
            for op in ops.users(tensor)
        ]
        everything = self.graph.get_operations()
        optimizing = [op for op in everything if op_kinds.of(op.type).optimizes]
        for op in (*optimizing, *uses):
            if op.name not in self.ops and ops.may_train(op):
                raise CannotFuse(f"leaves out {op.name!r}, which trains as well")

    def graph_def(self) -> tf.compat.v1.GraphDef:
        """Return the ops as a GraphDef that can be imported anywhere."""
        whole = self.graph.as_graph_def()
        part = tf1.GraphDef(versions=whole.versions, library=whole.library)
        for node in whole.node:
            if node.name in self.ops:
                copy = part.node.add()
                copy.CopyFrom(node)
                copy.attr.pop("_class", None)  # colocation with ops that stay behind
                inputs = [
                    name
                    for name in copy.input
                    if not name.startswith("^") or name[1:] in self.ops
                ]
                del copy.input[:]
                copy.input.extend(inputs)
        return part


def reference_variable(name: str) -> str:
    """Return what the log calls a reference variable that keeps steps from a feature.

    Args:
        name: The name of an op of the variable.
    """
    if tf1.resource_variables_enabled():  # the program has asked for this one
        return f"a reference variable, {name!r}"
    return f"a reference variable, {name!r} (see --tf1-resource-variables)"


def has_reference(op: tf.Operation) -> bool:
    """Return whether an op takes or returns a reference variable."""
    return any(map(graphs.is_reference, (*op.inputs, *op.outputs)))


def _is_resource(op: tf.Operation) -> bool:
    """Return whether an op makes a resource for all steps, such as a variable."""
    # The inputs of a dense table are two of its keys: constants.
    return keeps_resource(op) and all(t.op.type == "Const" for t in op.inputs)


def keeps_resource(op: tf.Operation) -> bool:
    """Return whether an op returns a handle to a resource that outlives the step."""
    gives = bool(op.outputs) and all(t.dtype == tf.resource for t in op.outputs)
    # Ops that make a new resource at each step (Anonymous..., a function) have no such
    # attribute.
    return gives and "shared_name" in op.node_def.attr
