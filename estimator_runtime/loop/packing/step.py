"""A copy of a step, in the same graph, that sends packed tensors between tasks.

Only the ops after a pack are copied. The step and its copy share everything else, such
as reads of variables and ops that keep state. So either can run in place of the other
at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import tensorflow as tf

from estimator_runtime.loop.global_step import reads_of, variable_of
from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.order import ordered, predecessors
from estimator_runtime.loop.graph.subgraph import (
    Subgraph,
    has_reference,
    reference_variable,
)
from estimator_runtime.loop.packing.pack_ops import add_pack
from estimator_runtime.loop.packing.transfers import StepTransfers
from estimator_runtime.tf_internals import graphs, op_kinds

tf1 = tf.compat.v1
SCOPE = "packed_step"


class CannotPack(Exception):
    """Raised if a step runs as it is; the message completes "because it ..."."""


class NothingToPack(CannotPack):
    """Raised if no tensor of a step is known to cross between tasks."""


class PackedStep:
    """A copy of a step that sends fewer, larger tensors between tasks.

    Args:
        step: The part of the graph that is the step.
        task_of: Returns the name of the task that runs an op, or None if that is not
            known.

    Attributes:
        step: As given.
        count: The number of tensors that cross between tasks in the step.
        packed_count: The same number for its copy.

    Raises:
        NothingToPack: If no tensor is known to cross between tasks.
        CannotPack: If the step cannot be copied, or nothing in it can be packed.
    """

    def __init__(
        self, step: Subgraph, task_of: Callable[[tf.Operation], str | None]
    ) -> None:
        _check(step)
        self.step, self._graph = step, step.graph
        self._task_of = task_of
        self._copies: dict[str, tf.Operation] = {}
        # Tensors received in a task, by the tensor they replace and the task.
        self._arrived: dict[tuple[str, str | None], tf.Tensor] = {}
        transfers = StepTransfers(step, task_of)
        self.count, self.packed_count = transfers.count, transfers.packed_count
        if not self.count:
            raise NothingToPack("has no tensor that is known to cross between tasks")
        if self.packed_count == self.count:
            raise CannotPack("has no tensors that could cross between tasks as one")
        # No call in another thread may see the copy without everything it waits for.
        with graphs.adding_to(self._graph):
            with tf.name_scope(SCOPE) as self._scope:
                pass
            self._copy_step(transfers)
            # Replacements for the reads of the global step that hooks fetch.
            self._step_reads = self._read_step_first()

    def _copy_step(self, transfers: StepTransfers) -> None:
        """Add the packs, and copies of all ops that come after one.

        A pack is used at higher levels than the one of its tensors only.
        """
        for (name, task), op in transfers.constants.items():
            with tf.device(f"{task}/device:CPU:0"):
                value = tf.make_ndarray(op.get_attr("value"))
                copy = tf.constant(value, op.outputs[0].dtype, name=SCOPE)
            self._arrived[name, task] = copy
        users = self._users(transfers.ordered, transfers.arriving)
        copied = self._after(transfers.ordered, users)
        for level in range(1 + max(transfers.levels.values())):
            self._copy_ops([op for op in copied if transfers.levels[op.name] == level])
            for pack in transfers.packs:
                if transfers.levels[pack.tensors[0].op.name] != level:
                    continue
                with tf.name_scope(f"{SCOPE}_transfers"):
                    arrived = add_pack(pack, [self._copy(t) for t in pack.tensors])
                for sent, received in zip(pack.tensors, arrived, strict=True):
                    self._arrived[sent.name, pack.destination] = received

    def substitutes(
        self, fetches: Sequence[tf.Tensor], targets: Sequence[tf.Operation]
    ) -> tuple[list[tf.Tensor], list[tf.Operation]]:
        """Return what to fetch and run for a call that runs the step and more.

        Copies of the ops that come after the step are added to the graph.

        Raises:
            CannotPack: If an op that comes after the step cannot be copied.
        """
        reads = self._step_reads
        roots = [*(t.op for t in fetches if t.name not in reads), *targets]
        part = Subgraph(self._graph, roots, without=self._copies)
        _check(part)  # first, because ops in a loop have no order
        more = ordered(part.ops)
        after = self._after(more, self._users(more, self._arrived))
        for op in after:
            if ops.has_only_state(op):
                raise CannotPack(f"is run with {op.name!r}, which keeps state")
        with graphs.adding_to(self._graph):
            self._copy_ops(after)
        found = [reads.get(tensor.name, self._copy(tensor)) for tensor in fetches]
        return found, [self._copies.get(op.name, op) for op in targets]

    def _copy(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the copy of a tensor, or the tensor itself if there is none."""
        copy = self._copies.get(tensor.op.name)
        return tensor if copy is None else copy.outputs[tensor.value_index]

    def _read_step_first(self) -> dict[str, tf.Tensor]:
        """Make the copy increment the global step only after hooks have read it.

        Stock TensorFlow also gives hooks the value from before the step, but only
        because a read is faster than a step. A packed step can be faster than that
        read, which goes to the other task twice.

        Returns:
            The read that the copy waits for, by the names of the tensors that hooks
            fetch for the global step; empty if the copy does not increment it.
        """
        variable = variable_of(self._graph)
        if not isinstance(variable, graphs.BaseResourceVariable):
            return {}
        handle = variable.handle
        adding = [
            self._copies[op.name]
            for op in handle.consumers()
            if op.name in self._copies and ops.may_write(op)
        ]
        if not adding:
            return {}
        with graphs.adding_to(self._graph), tf1.device(handle.device):
            read = tf.raw_ops.ReadVariableOp(
                resource=handle, dtype=variable.dtype, name=f"{SCOPE}_global_step"
            )
        for op in adding:
            graphs.run_after(op, read.op)
        return dict.fromkeys(reads_of(self._graph, variable), read)

    def _users(
        self,
        operations: Sequence[tf.Operation],
        arriving: Container[tuple[str, str | None]],
    ) -> list[str]:
        """Return the names of the ops that use one of these tensors in its task."""
        return [
            op.name
            for op in operations
            if any((it.name, self._task_of(op)) in arriving for it in op.inputs)
        ]

    def _after(
        self, operations: Sequence[tf.Operation], started: Sequence[str]
    ) -> list[tf.Operation]:
        """Return the ops in `started`, and those that depend on them or on copies."""
        found = set(started)
        for op in operations:
            if any(
                before.name in found or before.name in self._copies
                for before in predecessors(op)
            ):
                found.add(op.name)
        return [op for op in operations if op.name in found]

    def _copy_ops(self, operations: Sequence[tf.Operation]) -> None:
        """Add copies of ops to the graph, which use what has been copied before.

        Raises:
            CannotPack: If TensorFlow does not accept the copies.
        """
        if not operations:
            return
        names = [op.name for op in operations]
        nodes = tf1.GraphDef(versions=self._graph.graph_def_versions)
        outside: dict[str, tf.Tensor] = {}
        waits: list[tuple[str, tf.Operation]] = []
        for op in operations:
            node = nodes.node.add()
            node.CopyFrom(op.node_def)
            node.attr.pop("_class", None)  # names ops that stay behind
            task = self._task_of(op)
            node.device = _device(op, task)
            del node.input[:]
            for tensor in op.inputs:
                arrived = self._arrived.get((tensor.name, task))
                if arrived is None and tensor.op.name in names:
                    node.input.append(tensor.name)
                    continue
                source = self._copy(tensor) if arrived is None else arrived
                node.input.append(f"outside/{source.name}")
                outside[f"outside/{source.name}"] = source
            for before in op.control_inputs:
                if before.name in names:
                    node.input.append(f"^{before.name}")
                else:
                    waits.append((op.name, before))
        try:
            copies = tf.graph_util.import_graph_def(
                nodes, input_map=outside, return_elements=names, name=self._scope
            )
        except (TypeError, ValueError, tf.errors.OpError) as error:
            reason = str(error).partition("\n")[0]
            raise CannotPack(f"cannot be copied: {reason}") from error
        self._copies.update(zip(names, copies, strict=True))
        for name, before in waits:
            before = self._copies.get(before.name, before)
            graphs.run_after(self._copies[name], before)


def _device(op: tf.Operation, task: str | None) -> str:
    """Return the device for a copy of an op that a task runs."""
    asked = tf.DeviceSpec.from_string(op.device)
    if task is None or asked.job:
        return op.device
    # The placer puts the op next to its resource, perhaps on "CPU:1".
    return tf.DeviceSpec.from_string(task).make_merged_spec(asked).to_string()


def _check(part: Subgraph) -> None:
    """Raise CannotPack if a part of the graph has ops that cannot be copied."""
    for op in part.ops.values():
        if op_kinds.of(op.type).is_control_flow_v1:
            raise CannotPack(f"has control flow of TensorFlow 1, {op.name!r}")
        if has_reference(op):
            raise CannotPack(f"has {reference_variable(op.name)}")
    if waiting := part.waiting_handle():
        raise CannotPack(f"has a resource that waits for other ops, {waiting!r}")
