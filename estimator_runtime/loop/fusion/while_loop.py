"""K training steps as one op: the step's own subgraph as the body of a while loop.

An unmodified graph is taken as it is. What the step reads and writes (variables,
iterators, tables) is captured; everything else is imported into the loop's body, node
by node, with the same seeds, so that the steps are the same as single ones, to the
bit. What only hooks ask for, such as summaries, stays outside (see `beyond`).
"""

import hashlib

import tensorflow as tf
from tensorflow.python.distribute import values as distributed
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops, while_v2

from estimator_runtime.loop import writers
from estimator_runtime.loop.beyond import Beyond
from estimator_runtime.loop.global_step import adds_one, reads_of
from estimator_runtime.loop.part import CannotFuse, Part
from estimator_runtime.loop.substitute import FusedSteps, Substitute

tf1 = tf.compat.v1

# Values of the caller's are kept in a variable at every step: small ones only.
_MAX_KEPT_ELEMENTS = 1024
_COLLECTION = ("estimator_runtime", "fused_steps")  # of (key, FusedSteps)


def fuse(graph, targets, tensors, extras, global_step, loss):
    """Add a loop of training steps to a graph that may be finalized already.

    Args:
        graph: The graph of the session.
        targets: Ops that make up a step.
        tensors: Tensors of the step that the caller fetches.
        extras: Tensors and ops that hooks may ask for.
        global_step: The global step's variable.
        loss: The one of `tensors` at whose NaN the loop ends early, or None.

    Returns:
        `FusedSteps`.

    Raises:
        CannotFuse: If the step has parts that cannot be in a loop.
    """
    step = Part(graph, [*targets, *(tensor.op for tensor in tensors)])
    step.check_fusable()
    if isinstance(global_step, distributed.DistributedVariable):
        raise CannotFuse("is one of several replicas")
    if global_step is None or not adds_one(step, global_step):
        raise CannotFuse("does not add 1 to the global step")
    step.check_alone()
    for tensor in tensors:
        _check_small(tensor)
    # Another session of the graph, such as one that was lost, may have added it. A
    # collection whose name is no str is in no MetaGraph.
    known = graph.get_collection_ref(_COLLECTION)
    key = _key(graph, targets, tensors, extras, reads_of(graph, global_step), loss)
    for each, fused in known:
        if each == key:
            return fused
    fused = _add(step, targets, tensors, extras, global_step, loss)
    known.append((key, fused))
    return fused


def _key(graph, targets, tensors, extras, reads, loss):
    """Give what tells the loops of a graph apart."""
    wanted = [*targets, *tensors, *extras]
    # With the ops themselves: a program may change some between two sessions.
    used = Part(graph, [each.op if tf.is_tensor(each) else each for each in wanted])
    nodes = hashlib.sha256()  # and not the nodes: they may hold large constants
    for op in used.ops.values():
        nodes.update(op.node_def.SerializeToString(deterministic=True))
    names = [[each.name for each in group] for group in (targets, tensors, extras)]
    return names, list(reads), loss is not None and loss.name, nodes.digest()


def _add(step, targets, tensors, extras, global_step, loss):
    """Add the loop, outside of whatever the program has around its call."""
    graph = step.graph
    was_finalized = graph.finalized
    graph._unsafe_unfinalize()  # TensorFlow's own way to add to a finalized graph
    try:
        with (
            graph.as_default(),
            tf.name_scope("fused_steps"),
            # Whatever the program has around its call of the session.
            graph.control_dependencies(None),
            graph.colocate_with(None, ignore_existing=True),
            graph.device(None),
        ):
            return _fuse(step, targets, tensors, extras, global_step, loss)
    except (TypeError, ValueError, NotImplementedError, tf.errors.OpError) as error:
        # TensorFlow's own reason, such as a type of value that no loop can carry.
        reason = str(error).partition("\n")[0]
        raise CannotFuse(f"cannot be in a loop: {reason}") from error
    finally:
        if was_finalized:
            graph.finalize()


def _fuse(step, targets, tensors, extras, global_step, loss):
    reads = reads_of(step.graph, global_step)
    beyond = Beyond(step, [each for each in extras if each.name not in reads])
    alone = tf1.placeholder(tf.int32, [], name="alone")
    before = beyond.read()
    with tf.control_dependencies(list(before.values())):
        when_read = tf.identity(alone)
    count = tf1.placeholder_with_default(when_read, [], name="count")
    carried = {**{t.name: t for t in tensors}, **beyond.from_step}
    kept = {t.name: _Kept(t.dtype, t.shape) for t in tensors}
    total = _Kept(tf.int64, [])
    left, ran, done = _loop(step, targets, carried, count, loss, kept, total)
    extras = {**before, **beyond.compute({**before, **left}, done)}
    with tf.control_dependencies([done]):
        # The value that a step's fetches see: from before its increment.
        trained_before = global_step.read_value() - 1
    of_step = {
        **left,
        **dict.fromkeys(reads, trained_before),
        **dict.fromkeys(step.ops, done),
        ran.name: ran,
    }
    values = {**extras, **of_step}
    zero = tf.zeros([])
    nothing = tf.no_op()
    return FusedSteps(
        steps=Substitute(
            feeds=(count.name,),
            target=done,
            values={n: v for n, v in values.items() if n not in beyond.waiting},
        ),
        last=Substitute(feeds=(alone.name,), target=done, values=values),
        but_last=Substitute(
            feeds=(count.name,),
            target=done,
            values={
                **{
                    name: zero if isinstance(extra, tf.Tensor) else nothing
                    for name, extra in extras.items()
                },
                **of_step,
            },
        ),
        kept=Substitute(
            feeds=(),
            target=nothing,
            values={
                **dict.fromkeys(step.ops, nothing),
                **{name: each.read() for name, each in kept.items()},
            },
        ),
        extras=frozenset(extras),
        ran=ran,
        total=total.read(),
        reset=total.keep(tf.zeros([], tf.int64)),
    )


class _Kept:
    """A variable that the loop writes, and that is there also when a run has failed."""

    def __init__(self, dtype, shape):
        self._dtype = dtype
        with tf1.device("/cpu:0"):
            self._handle = gen_resource_variable_ops.var_handle_op(
                dtype=dtype,
                shape=shape,
                shared_name=ops.get_default_graph().unique_name("fused_steps_kept"),
            )

    def keep(self, value):
        return gen_resource_variable_ops.assign_variable_op(self._here(), value)

    def add(self, value):
        return gen_resource_variable_ops.assign_add_variable_op(self._here(), value)

    def read(self):
        return gen_resource_variable_ops.read_variable_op(self._handle, self._dtype)

    def _here(self):
        graph = ops.get_default_graph()
        is_outside = graph is self._handle.graph
        return self._handle if is_outside else graph.capture(self._handle)


def _check_small(tensor):
    elements = tensor.shape.num_elements()
    if elements is None or elements > _MAX_KEPT_ELEMENTS:
        raise CannotFuse(f"is asked for {tensor.name!r}, which is not small")


def _loop(step, targets, carried, count, loss, kept, total):
    """Build the loop.

    Args:
        step: `Part` of the graph that is the step.
        targets: Ops that make up a step.
        carried: Tensors of the step whose last values are wanted, by name.
        count: The number of steps to run.
        loss: The one of `carried` at whose NaN the loop ends, or None.
        kept: What keeps the values of some of `carried`, by name.
        total: What counts the complete steps of all runs.

    Returns:
        The last values of `carried` by name, the steps run, and the loop's op.
    """
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
        for name, value in zip(names, values, strict=True):
            value.set_shape(carried[name].shape)  # where the program has set it
        with tf.control_dependencies(done):
            keep = [each.keep(values[names.index(n)]) for n, each in kept.items()]
        with tf.control_dependencies([*done, *keep]):
            values = [tf.identity(value) for value in values]
        # Not before all else of the step is done: it may fail.
        with tf.control_dependencies([*done, *keep, *values]):
            counted = total.add(tf.ones([], tf.int64))
        with tf.control_dependencies([counted]):
            return [i + 1, *values]

    initial = [tf.zeros([d or 0 for d in _dims(t)], t.dtype) for t in carried.values()]
    results = while_v2.while_loop(
        condition,
        body,
        [tf.constant(0), *initial],
        shape_invariants=[tf.TensorShape([]), *(t.shape for t in carried.values())],
        parallel_iterations=1,
    )
    loop = results[0].op
    while loop.type == "Identity":
        loop = loop.inputs[0].op
    writers.mark(loop)
    return dict(zip(names, results[1:], strict=True)), results[0], results[0].op


def _dims(tensor):
    return tensor.shape.as_list() if tensor.shape.rank is not None else []
