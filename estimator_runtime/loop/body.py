"""K training steps as one op: the step's own subgraph as the body of a while loop.

An unmodified graph is taken as it is. What the step reads and writes (variables,
iterators, tables) is captured; everything else is imported into the loop's body, node
by node, with the same seeds, so that the steps are the same as single ones, to the
bit. What only hooks ask for, such as summaries, is computed after the loop, from the
values that the last step left.
"""

import dataclasses

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops, while_v2
from tensorflow.python.training import training_util

from estimator_runtime.loop.plan import CannotPlan

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
# Values of the caller's are kept in a variable at every step: small ones only.
_MAX_KEPT_ELEMENTS = 1024


class CannotFuse(Exception):
    """Why a step cannot be in a loop, as the end of "because the step ..."."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Substitute:
    """What to run and fetch in place of the ops and tensors of a step.

    Attributes:
        feeds: Names of the placeholders to feed.
        targets: Names of the ops that stand for any op of the step.
        ops: Names of the ops of the step.
        values: Name of a tensor to the tensor with its value.
    """

    feeds: tuple[str, ...]
    targets: tuple[str, ...]
    ops: frozenset[str]
    values: dict

    def names_of(self, tensors):
        """Give the names to fetch for `tensors`; CannotPlan if one is unknown."""
        unknown = [t.name for t in tensors if t.name not in self.values]
        if unknown:
            raise CannotPlan(f"{unknown} are not computed by the fused steps")
        return [self.values[tensor.name].name for tensor in tensors]

    def targets_of(self, operations):
        """Give the names to run for `operations`; CannotPlan if one is unknown."""
        unknown = [op.name for op in operations if op.name not in self.ops]
        if unknown:
            raise CannotPlan(f"{unknown} are not run by the fused steps")
        return self.targets


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedSteps(Substitute):
    """A loop of steps, in the graph of the step; its feed is how many to run.

    Its values are those of the last step.

    Attributes:
        kept: `Substitute` that gives the caller's values of the last complete step,
            without running any; also after a run that failed.
    """

    kept: Substitute


def fuse(graph, targets, tensors, extras, global_step, loss):
    """Add a loop of training steps to a graph that may be finalized already.

    Args:
        graph: The graph of the session.
        targets: Ops that make up a step.
        tensors: Tensors of the step that the caller fetches.
        extras: Tensors that hooks may ask for.
        global_step: The global step's variable.
        loss: The one of `tensors` at whose NaN the loop ends early, or None.

    Raises:
        CannotFuse: If the step has parts that cannot be in a loop.
    """
    step = _Part(graph, [*targets, *(tensor.op for tensor in tensors)])
    step.check()
    _check_global_step(step, global_step)
    beyond = _Part(graph, [tensor.op for tensor in extras], without=step.ops)
    carried = {t.name: t for t in tensors}
    for tensor in (*extras, *beyond.inputs.values()):
        if tensor.op.name in step.ops:
            carried[tensor.name] = tensor
    was_finalized = graph.finalized
    graph._unsafe_unfinalize()  # TensorFlow's own way to add to a finalized graph
    try:
        with graph.as_default(), tf.name_scope("fused_steps"), graph.device(None):
            count = tf1.placeholder(tf.int32, [], name="count")
            kept = {t.name: _Kept(t) for t in tensors}
            values, done = _loop(step, targets, carried, count, loss, kept)
            with tf.control_dependencies([done]):
                # The value that a step's fetches see: from before its increment.
                before = global_step.read_value() - 1
            values.update(_beyond(beyond, extras, values, done))
            values.update((t.name, before) for t in _reads_of(graph, global_step))
            names = frozenset(step.ops)
            return FusedSteps(
                feeds=(count.name,),
                targets=(done.name,),
                ops=names,
                values=values,
                kept=Substitute(
                    feeds=(),
                    targets=(),
                    ops=names,
                    values={name: each.read() for name, each in kept.items()},
                ),
            )
    finally:
        if was_finalized:
            graph.finalize()


def parts(fetches):
    """Take a step's fetches apart, into its ops and its tensors.

    Raises:
        CannotFuse: If there is anything else among them.
    """
    flat = tf.nest.flatten(fetches)
    other = [f for f in flat if not isinstance(f, (tf.Operation, tf.Tensor))]
    if other:
        raise CannotFuse(f"is asked for {other[0]!r}, neither an op nor a tensor")
    return (
        [f for f in flat if isinstance(f, tf.Operation)],
        [f for f in flat if isinstance(f, tf.Tensor)],
    )


class _Part:
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

    def check(self):
        """Refuse ops that cannot be in a loop."""
        for op in self.ops.values():
            if op.type in _UNFUSABLE:
                raise CannotFuse(f"{_UNFUSABLE[op.type]}, {op.name!r}")
            if any(t.dtype._is_ref_dtype for t in (*op.inputs, *op.outputs)):
                raise CannotFuse(f"has a reference variable, {op.name!r}")

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


class _Kept:
    """A variable with the value of a tensor at the last complete step."""

    def __init__(self, tensor):
        if tensor.shape.num_elements() is None or (
            tensor.shape.num_elements() > _MAX_KEPT_ELEMENTS
        ):
            raise CannotFuse(f"is asked for {tensor.name!r}, which is not small")
        self._tensor = tensor
        with tf1.device("/cpu:0"):
            self.handle = gen_resource_variable_ops.var_handle_op(
                dtype=tensor.dtype,
                shape=tensor.shape,
                shared_name=tensor.graph.unique_name("fused_steps_kept"),
            )

    def read(self):
        return gen_resource_variable_ops.read_variable_op(
            self.handle, self._tensor.dtype
        )


def _loop(step, targets, carried, count, loss, kept):
    """Build the loop; give the carried tensors' last values by name, and its op."""
    graph_def = step.graph_def()
    names = list(carried)

    def condition(i, *values):
        more = i < count
        if loss is None:
            return more
        is_nan = tf.reduce_any(tf.math.is_nan(values[names.index(loss.name)]))
        return tf.logical_and(more, tf.logical_not(is_nan))

    def body(i, *_):
        inner = ops.get_default_graph()
        found = tf.graph_util.import_graph_def(
            graph_def,
            input_map={n: inner.capture(t) for n, t in step.handles.items()},
            return_elements=[*names, *(op.name for op in targets)],
            name="",
        )
        values, done = found[: len(names)], found[len(names) :]
        with tf.control_dependencies(done):
            keep = [
                gen_resource_variable_ops.assign_variable_op(
                    inner.capture(each.handle), values[names.index(name)]
                )
                for name, each in kept.items()
            ]
        with tf.control_dependencies([*done, *keep]):
            return [i + 1, *map(tf.identity, values)]

    initial = [tf.zeros([d or 0 for d in _dims(t)], t.dtype) for t in carried.values()]
    results = while_v2.while_loop(
        condition,
        body,
        [tf.constant(0), *initial],
        shape_invariants=[tf.TensorShape([]), *(t.shape for t in carried.values())],
        parallel_iterations=1,
    )
    return dict(zip(names, results[1:], strict=True)), results[0].op


def _beyond(beyond, extras, values, done):
    """Compute what hooks ask for from the values that the last step left."""
    with tf.control_dependencies([done]):
        # So that variables are read when the steps have been.
        handles = {name: tf.identity(t) for name, t in beyond.handles.items()}
    inside = {name: values[name] for name in beyond.inputs}
    computed = [t for t in extras if t.op.name in beyond.ops]
    found = tf.graph_util.import_graph_def(
        beyond.graph_def(),
        input_map={**handles, **inside},
        return_elements=[t.name for t in computed],
        name="extras",
    )
    return {t.name: result for t, result in zip(computed, found, strict=True)}


def _is_resource(op):
    return (
        bool(op.outputs)
        and not op.inputs
        and all(t.dtype == tf.resource for t in op.outputs)
    )


def _dims(tensor):
    return tensor.shape.as_list() if tensor.shape.rank is not None else []


def _reads_of(graph, global_step):
    """Give the tensors that hooks fetch for the global step."""
    return [
        global_step._graph_element,
        *graph.get_collection(training_util.GLOBAL_STEP_READ_KEY),
    ]


def _check_global_step(step, global_step):
    """Check that each step adds 1 to the global step, which hooks count by."""
    handle = getattr(global_step, "handle", None)
    if handle is None:
        raise CannotFuse("has no global step")
    writers = [
        op
        for op in step.ops.values()
        if op.inputs
        and op.inputs[0] is handle
        and op.type not in ("ReadVariableOp", "VariableShape", "VarIsInitializedOp")
    ]
    adds_one = len(writers) == 1 and writers[0].type == "AssignAddVariableOp"
    if not adds_one or tf.get_static_value(writers[0].inputs[1]) != 1:
        raise CannotFuse("does not add 1 to the global step")
