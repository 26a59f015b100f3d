"""K training steps as one op: a while loop over the step's own subgraph.

The program's graph is used as it is. The loop captures what the step reads and writes:
variables, iterators and tables. Every other op of the step is imported into the body
of the loop, node by node and with the same seeds, so the results are bit-identical to
those of single steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.loop.fusion import adam
from estimator_runtime.loop.global_step import adds_one, reads_of
from estimator_runtime.loop.graph import ops as graph_ops
from estimator_runtime.loop.graph import order
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph
from estimator_runtime.loop.plan import Substitute
from estimator_runtime.tf_internals import graphs

tf1 = tf.compat.v1
# Every step stores the values that the caller fetches in variables, so they must be
# small.
_MAX_KEPT_ELEMENTS = 1024
_COLLECTION = ("estimator_runtime", "fused_steps")  # of (key, FusedSteps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopRequest:
    """What a loop of steps runs and returns.

    Attributes:
        targets: Ops that make up a step.
        tensors: Tensors of the step that the caller fetches.
        global_step: The global step's variable; None if the graph has none.
        losses: Those of `tensors` whose NaN ends the loop early.
        may_split: Whether the loop may have several ops in place of a kernel. It needs
            a session that runs them all on CPUs, and as they are.
    """

    targets: Sequence[tf.Operation]
    tensors: Sequence[tf.Tensor]
    global_step: Any
    losses: Sequence[tf.Tensor]
    may_split: bool


def fuse(step: Subgraph, request: LoopRequest) -> FusedSteps:
    """Add a loop of training steps to a graph, which may already be finalized.

    Args:
        step: The part of the graph that is the step.
        request: What the loop runs and returns.

    Returns:
        The loop, and what to run and fetch in place of the step. Equal arguments for
        an unchanged graph return the same loop.

    Raises:
        CannotFuse: If parts of the step cannot run in a loop.
        Exception: TensorFlow's own reason, such as a type of value that no loop can
            carry.
    """
    check_step(step, request.global_step)
    step.check_alone()
    # The loop returns the global step from before a step, whatever the order of ops.
    reads = reads_of(step.graph, request.global_step)
    asked = [tensor.op for tensor in request.tensors if tensor.name not in reads]
    unordered = order.find_unordered(Subgraph(step.graph, [*request.targets, *asked]))
    if unordered is not None:
        raise CannotFuse(
            f"sets no order between {unordered!r} and a change of the same resource"
        )
    for tensor in request.tensors:
        _check_small(tensor)
    # An earlier session of the graph, such as one that was lost, may have added the
    # loop. A MetaGraph leaves out collections whose name is not a string.
    known = step.graph.get_collection_ref(_COLLECTION)
    groups = (request.targets, request.tensors, request.losses)
    names = [[each.name for each in group] for group in groups]
    key = names, reads, request.may_split
    for each, fused in known:
        if each == key:
            return fused
    # Outside any scope that the program has entered.
    with graphs.adding_to(step.graph), tf.name_scope("fused_steps"):
        fused = _fuse(step, request)
    known.append((key, fused))
    return fused


def check_step(step: Subgraph, global_step: Any) -> None:
    """Raise CannotFuse if an op of a step, or its global step, rules out a loop."""
    step.check_fusable()
    if isinstance(global_step, graphs.DistributedVariable):
        raise CannotFuse("is one of several replicas")
    if not adds_one(step, global_step):
        raise CannotFuse("does not add 1 to the global step")


def _fuse(step: Subgraph, request: LoopRequest) -> FusedSteps:
    """Build the loop and its substitutes in the default graph."""
    reads = reads_of(step.graph, request.global_step)
    count = tf1.placeholder(tf.int32, [], name="count")
    kept = {t.name: _Kept(t) for t in request.tensors}
    total = _Kept(tf.zeros([], tf.int64))
    end = tf1.placeholder(tf.float64, [], name="end")
    left, ran, done = _loop(step, request, (count, end), kept, total)
    with tf.control_dependencies([done]):
        # The value that a step's fetches see: the one before its increment.
        trained_before = request.global_step.read_value() - 1
    nothing = tf.no_op()
    steps = Substitute(
        feeds=(count.name, end.name),
        target=done,
        values={
            **left,
            **dict.fromkeys(reads, trained_before),
            **dict.fromkeys(step.ops, done),
            ran.name: ran,
        },
    )
    return FusedSteps(
        steps=steps,
        kept=Substitute(
            feeds=(),
            target=nothing,
            values={
                **dict.fromkeys(step.ops, nothing),
                **dict.fromkeys(reads, request.global_step.read_value() - 1),
                **{name: each.read() for name, each in kept.items()},
            },
        ),
        ran=ran,
        total=total.read(),
        reset=total.keep(tf.zeros([], tf.int64)),
    )


class _Kept:
    """A variable that the loop writes, and that survives a failed run."""

    def __init__(self, like: tf.Tensor) -> None:
        self._dtype = like.dtype
        name = tf1.get_default_graph().unique_name("fused_steps_kept")
        with tf1.device("/cpu:0"):
            self._handle = tf.raw_ops.VarHandleOp(
                dtype=like.dtype, shape=like.shape, shared_name=name
            )

    def keep(self, value: tf.Tensor) -> tf.Operation:
        """Add an op that assigns `value` to the variable, and return the op."""
        return tf.raw_ops.AssignVariableOp(resource=self._here(), value=value)

    def add(self, value: tf.Tensor) -> tf.Operation:
        """Add an op that adds `value` to the variable, and return the op."""
        return tf.raw_ops.AssignAddVariableOp(resource=self._here(), value=value)

    def read(self) -> tf.Tensor:
        """Return a new tensor that reads the variable, for use outside the loop."""
        return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)

    def _here(self) -> tf.Tensor:
        """Return the handle, captured if the default graph is the loop's body."""
        graph = tf.compat.v1.get_default_graph()
        is_outside = graph is self._handle.graph
        return self._handle if is_outside else graph.capture(self._handle)


def _check_small(tensor: tf.Tensor) -> None:
    """Raise CannotFuse if a tensor is too large to be stored at every step."""
    elements = tensor.shape.num_elements()
    if elements is None or elements > _MAX_KEPT_ELEMENTS:
        raise CannotFuse(f"is asked for {tensor.name!r}, which is not small")


def _loop(
    step: Subgraph,
    request: LoopRequest,
    limits: tuple[tf.Tensor, tf.Tensor],
    kept: Mapping[str, _Kept],
    total: _Kept,
) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Operation]:
    """Build the loop in the default graph.

    Args:
        step: The part of the graph that is the step.
        request: What the loop runs and returns.
        limits: The number of steps to run, and the time, in seconds since the epoch,
            after which no step but the first begins.
        kept: The variables that store values of the last complete step, by name.
        total: The variable that counts the complete steps of all runs.

    Returns:
        The last values of the wanted tensors by name, the number of steps run, and the
        op that ends the loop.
    """
    graph_def = step.graph_def()
    if request.may_split:
        adam.split(graph_def, step.ops)
    names = [tensor.name for tensor in request.tensors]
    count, end = limits

    def condition(i: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
        in_time = tf.logical_or(tf.equal(i, 0), tf.timestamp() < end)
        more = tf.logical_and(i < count, in_time)
        for loss in request.losses:
            is_nan = tf.reduce_any(tf.math.is_nan(values[names.index(loss.name)]))
            more = tf.logical_and(more, tf.logical_not(is_nan))
        return more

    def body(i: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
        inner = tf.compat.v1.get_default_graph()
        found = tf.graph_util.import_graph_def(
            graph_def,
            input_map={n: inner.capture(t) for n, t in step.handles.items()},
            return_elements=[*names, *(op.name for op in request.targets)],
            name="",
        )
        values, done = found[: len(names)], found[len(names) :]
        for tensor, value in zip(request.tensors, values, strict=True):
            # An import loses the shapes that the program has set by hand.
            value.set_shape(tensor.shape)
        with tf.control_dependencies(done):
            keep = [each.keep(values[names.index(n)]) for n, each in kept.items()]
        with tf.control_dependencies([*done, *keep]):
            values = [tf.identity(value) for value in values]
        # Count the step only when everything else in it is done, because it may fail.
        with tf.control_dependencies([*done, *keep, *values]):
            counted = total.add(tf.ones([], tf.int64))
        with tf.control_dependencies([counted]):
            return [i + 1, *values]

    initial = [tf.zeros(t.shape, t.dtype) for t in request.tensors]
    results = graphs.while_loop(
        condition,
        body,
        [tf.constant(0), *initial],
        parallel_iterations=1,
    )
    loop = results[0].op
    while loop.type == "Identity":
        loop = loop.inputs[0].op
    graph_ops.mark(loop)
    return dict(zip(names, results[1:], strict=True)), results[0], results[0].op


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedSteps:
    """A loop of steps, in the graph of the step.

    Attributes:
        steps: Substitute for a run of steps. Its feeds are the number of steps, and the
            time, in seconds since the epoch, after which no step but the first begins.
            It returns the values of the last step that ran.
        kept: Substitute that runs no step. It has the values of the last complete step
            that the caller fetches, the watched losses and the global step from before
            that step, even if the run has failed.
        ran: The tensor with the number of steps run. Fetch it through `steps`.
        total: The tensor with the number of complete steps of all runs. Fetch it from
            the session itself.
        reset: The op that sets `total` to 0. Run it before any step.
    """

    steps: Substitute
    kept: Substitute
    ran: tf.Tensor
    total: tf.Tensor
    reset: tf.Operation
