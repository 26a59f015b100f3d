"""K training steps as one op: the step's own subgraph as the body of a while loop.

An unmodified graph is taken as it is. What the step reads and writes (variables,
iterators, tables) is captured; everything else is imported into the loop's body, node
by node, with the same seeds, so that the steps are the same as single ones, to the
bit. What only hooks ask for, such as summaries, is computed after the loop, from the
values that the last step left.
"""

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops, while_v2
from tensorflow.python.training import training_util

from estimator_runtime.loop.part import CannotFuse, Part, adds_one
from estimator_runtime.loop.substitute import FusedSteps, Substitute

tf1 = tf.compat.v1

# Values of the caller's are kept in a variable at every step: small ones only.
_MAX_KEPT_ELEMENTS = 1024


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
    step = Part(graph, [*targets, *(tensor.op for tensor in tensors)])
    step.check_fusable()
    if global_step is None or not adds_one(step, global_step):
        raise CannotFuse("does not add 1 to the global step")
    beyond = Part(graph, [tensor.op for tensor in extras], without=step.ops)
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


def _dims(tensor):
    return tensor.shape.as_list() if tensor.shape.rank is not None else []


def _reads_of(graph, global_step):
    """Give the tensors that hooks fetch for the global step."""
    return [
        global_step._graph_element,
        *graph.get_collection(training_util.GLOBAL_STEP_READ_KEY),
    ]
