"""A part of a graph: a training step, or what hooks ask for beyond it."""

import tensorflow as tf

from estimator_runtime.loop import kernels, stateful_ops, writers

tf1 = tf.compat.v1

_UNFUSABLE = {
    "Placeholder": "reads a placeholder",
    "PyFunc": "calls Python (py_func)",
    "PyFuncStateless": "calls Python (py_func)",
    "EagerPyFunc": "calls Python (py_function)",
    "Switch": "has control flow of TensorFlow 1",
    "RefSwitch": "has control flow of TensorFlow 1",
    "Enter": "has control flow of TensorFlow 1",
    "RefEnter": "has control flow of TensorFlow 1",
    "CollectiveReduce": "all-reduces among workers",
    "CollectiveReduceV2": "all-reduces among workers",
    "CollectiveReduceV3": "all-reduces among workers",
    "NcclAllReduce": "all-reduces through NCCL",
}


class CannotFuse(Exception):
    """Why a step cannot be in a loop, as the end of "because the step ..."."""


def parts(fetches):
    """Take a step's fetches apart, into its ops and its tensors.

    Raises:
        CannotFuse: If there is anything else among them.
    """
    try:
        flat = tf.nest.flatten(fetches)
    except TypeError as error:  # names that cannot be sorted, in a dict
        raise CannotFuse(f"is asked for {fetches!r}, which has no order") from error
    flat = [f._as_graph_element() if isinstance(f, tf.Variable) else f for f in flat]
    other = [f for f in flat if not isinstance(f, (tf.Operation, tf.Tensor))]
    if other:
        raise CannotFuse(f"is asked for {other[0]!r}, neither an op nor a tensor")
    return (
        [f for f in flat if isinstance(f, tf.Operation)],
        [f for f in flat if isinstance(f, tf.Tensor)],
    )


class Part:
    """The ops that some ops of a graph need, those that make resources left out.

    Attributes:
        ops: The ops by name.
        handles: Tensors of resources that they take, by name.
        inputs: Other tensors that they take from outside, by name.
    """

    def __init__(self, graph, roots, without=frozenset()):
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
        outside = {t.name: t for t in self._all_inputs() if t.op.name not in self.ops}
        self.handles = {n: t for n, t in outside.items() if _is_resource(t.op)}
        self.inputs = {n: t for n, t in outside.items() if n not in self.handles}

    def _all_inputs(self):
        return (tensor for op in self.ops.values() for tensor in op.inputs)

    def waits_for(self, other):
        """Tell whether some op has a control dependency on one of another part."""
        return any(
            before.name in other.ops
            for op in self.ops.values()
            for before in op.control_inputs
        )

    def changed_handles(self):
        """Give the names of the handles whose resources the ops may change."""
        return {
            name
            for name, handle in self.handles.items()
            if any(
                op.name in self.ops and op.type not in writers.READERS
                for op in handle.consumers()
            )
        }

    def check_fusable(self):
        """Refuse ops that cannot be in a loop.

        Raises:
            CannotFuse: If there are any.
        """
        for op in self.ops.values():
            if op.type in _UNFUSABLE:
                raise CannotFuse(f"{_UNFUSABLE[op.type]}, {op.name!r}")
            if _has_reference(op):
                raise CannotFuse(f"has a reference variable, {op.name!r}")
            if _keeps_resource(op):
                raise CannotFuse(f"computes what {op.name!r} is made of")
        functions = kernels.called_functions(self.graph, self.ops.values())
        for name, function in sorted(functions.items()):
            for node in function.node_def:
                if node.op in _UNFUSABLE:
                    raise CannotFuse(
                        f"{_UNFUSABLE[node.op]}, {node.name!r} in the function {name!r}"
                    )
        found = stateful_ops.find_uncopyable(self.graph, self.ops.values())
        if found is not None:
            raise CannotFuse(f"has an op that may keep state of its own, {found}")

    def check_movable(self):
        """Refuse ops that cannot be run from a copy.

        Raises:
            CannotFuse: If there are any.
        """
        for op in self.ops.values():
            if _has_reference(op):  # the copy would be another variable
                raise CannotFuse(
                    f"is run with a reference variable, {op.name!r}, that hooks ask for"
                )
        found = stateful_ops.find_uncopyable(self.graph, self.ops.values())
        if found is not None:
            raise CannotFuse(
                f"is run with an op that may keep state of its own, {found}, that "
                "hooks ask for"
            )

    def check_alone(self):
        """Refuse a step beside which the program has others, to be run in turns.

        Raises:
            CannotFuse: If the graph has ops that train beyond these: an optimizer's,
                or what adds to a trainable variable or takes from it.
        """
        variables = self.graph.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES)
        uses = [
            op
            for variable in variables
            for tensor in variable.op.outputs
            for op in tensor.consumers()
        ]
        training = [*filter(writers.is_optimizer, self.graph.get_operations()), *uses]
        for op in training:
            if op.name not in self.ops and writers.may_train(op):
                raise CannotFuse(f"leaves out {op.name!r}, which trains as well")

    def graph_def(self):
        """Give the ops as a GraphDef that can be imported anywhere."""
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


def _has_reference(op):
    return any(t.dtype._is_ref_dtype for t in (*op.inputs, *op.outputs))


def _is_resource(op):
    """Tell whether an op gives a resource that all steps share, such as a variable."""
    # A dense table is made of two of its keys.
    return _keeps_resource(op) and all(t.op.type == "Const" for t in op.inputs)


def _keeps_resource(op):
    gives = bool(op.outputs) and all(t.dtype == tf.resource for t in op.outputs)
    # What makes a new one at each step (Anonymous..., a function) has no such name.
    return gives and "shared_name" in op.node_def.attr
