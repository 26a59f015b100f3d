"""A copy of a step, in the same graph, that sends packed tensors between tasks.

Only the ops after a pack are copied. The step and its copy share everything else, such
as reads of variables and ops that keep state. So either can run in place of the other
at any step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.loop.global_step import reads_of
from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import Subgraph, has_reference
from estimator_runtime.loop.packing.transfers import (
    Pack,
    StepTransfers,
    ordered,
    predecessors,
)
from estimator_runtime.tf_internals import internals

tf1 = tf.compat.v1
SCOPE = "packed_step"
_COPY_NAME = re.compile(rf"\b{SCOPE}(_\d+)?/[\w./>-]+")
_FRAMES = frozenset(
    {
        "Enter",
        "Exit",
        "LoopCond",
        "Merge",
        "NextIteration",
        "RefEnter",
        "RefExit",
        "RefMerge",
        "RefNextIteration",
        "RefSwitch",
        "Switch",
    }
)


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
        self._graph = step.graph
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
        with internals.adding_to(self._graph):
            self._import(transfers.ordered, transfers)
            # Replacements for the reads of the global step that hooks fetch.
            self._step_reads = self._read_step_first()

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
        if after:
            self._import(after)
        found = [reads.get(tensor.name, self._copy(tensor)) for tensor in fetches]
        return found, [self._copies.get(op.name, op) for op in targets]

    def of_program(self, error: tf.errors.OpError) -> tf.errors.OpError:
        """Return an error of a copied op as the program's own op would have raised it.

        Args:
            error: An error raised by a session call.

        Returns:
            An error of the same class that names the program's op and where the program
            created it; `error` itself if no copied op caused it.
        """
        names = {copy.name: name for name, copy in self._copies.items()}
        raw = error.__context__  # does not name where ops were created
        if getattr(error.op, "name", None) not in names:
            return error
        if not isinstance(raw, tf.errors.OpError):
            return error
        message = _COPY_NAME.sub(lambda m: names.get(m[0], m[0]), raw.message)
        op = self._graph.get_operation_by_name(names[error.op.name])
        message = internals.interpolate_graph(message, self._graph)
        return type(error)(op.node_def, op, message)

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
        variable = None
        if len(self._graph.get_collection(tf1.GraphKeys.GLOBAL_STEP)) == 1:
            variable = tf1.train.get_global_step(self._graph)
        if not isinstance(variable, internals.BaseResourceVariable):
            return {}
        handle = variable.handle
        adding = [
            self._copies[op.name]
            for op in handle.consumers()
            if op.name in self._copies and ops.may_write(op)
        ]
        if not adding:
            return {}
        with internals.adding_to(self._graph), tf1.device(handle.device):
            read = tf.raw_ops.ReadVariableOp(
                resource=handle, dtype=variable.dtype, name=f"{SCOPE}_global_step"
            )
        for op in adding:
            internals.run_after(op, read.op)
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

    def _import(
        self,
        operations: Sequence[tf.Operation],
        transfers: StepTransfers | None = None,
    ) -> None:
        """Add copies of ops to the graph.

        Args:
            operations: The ops, each after the ops that it depends on.
            transfers: What is packed among them; only ops after a pack are copied then.
                None to copy all.
        """
        if transfers is not None:
            users = self._users(operations, transfers.arriving)
            operations = self._after(operations, users)
        part = _CopiedPart({op.name for op in operations}, self._copy)
        arriving = part.add_transfers(transfers) if transfers is not None else {}
        for op in operations:
            task = self._task_of(op)
            inputs = []
            for tensor in op.inputs:
                key = (tensor.name, task)
                if key in arriving:
                    inputs.append(arriving[key])
                elif key in self._arrived:
                    inputs.append(part.refer_to(self._arrived[key]))
                else:
                    inputs.append(part.name_of(tensor))
            part.add_copy(op, task, inputs)
        with internals.adding_to(self._graph):
            copies, arrived = part.add_to(self._graph, list(arriving.values()))
            self._copies.update(copies)
            self._arrived.update(zip(arriving, arrived, strict=True))
            for name, before in part.waits:
                before = self._copies.get(before.name, before)
                internals.run_after(self._copies[name], before)


class _CopiedPart:
    """Nodes for a graph: copies of its ops, and the transfers between them.

    Args:
        names: The names of the ops of which this part has copies.
        copy_of: Returns the tensor of the graph to use in place of one of another op.

    Attributes:
        waits: (name of an op of this part, an op elsewhere that has to run before it).
    """

    def __init__(
        self, names: Container[str], copy_of: Callable[[tf.Tensor], tf.Tensor]
    ) -> None:
        self._names, self._copy_of = names, copy_of
        self._nodes = tf1.GraphDef()
        self._copied: list[str] = []
        # The tensors elsewhere that the nodes refer to, by the names they use for them.
        self._outside: dict[str, tf.Tensor] = {}
        self.waits: list[tuple[str, tf.Operation]] = []

    def name_of(self, tensor: tf.Tensor) -> str:
        """Return the name by which a node refers to a tensor of the step."""
        if tensor.op.name in self._names:
            return tensor.name
        return self.refer_to(self._copy_of(tensor))

    def refer_to(self, tensor: tf.Tensor) -> str:
        """Return the name by which a node refers to a tensor of the graph itself."""
        name = f"outside/{tensor.name}"
        self._outside[name] = tensor
        return name

    def add_transfers(
        self, transfers: StepTransfers
    ) -> dict[tuple[str, str | None], str]:
        """Add the packs, and copies of the constants that need not be sent.

        Returns:
            The name of each received tensor, by the name of the tensor that it replaces
            and the task that receives it.
        """
        arriving: dict[tuple[str, str | None], str] = {}
        nodes = PackNodes(self._nodes, self.name_of)
        for index, pack in enumerate(transfers.packs):
            names = nodes.add(pack, f"{SCOPE}_transfers/{index}")
            for sent, name in names.items():
                arriving[sent, pack.destination] = name
        for index, (key, op) in enumerate(transfers.constants.items()):
            constant = self._nodes.node.add()
            constant.CopyFrom(op.node_def)
            constant.name = f"{SCOPE}_transfers/constant_{index}"
            constant.device = f"{key[1]}/device:CPU:0"
            constant.attr.pop("_class", None)
            arriving[key] = constant.name
        return arriving

    def add_copy(
        self, op: tf.Operation, task: str | None, inputs: Sequence[str]
    ) -> None:
        """Add a copy of an op.

        Args:
            op: The op.
            task: The task that runs it, or None if that is not known.
            inputs: The names of the tensors that the copy takes.
        """
        node = self._nodes.node.add()
        node.CopyFrom(op.node_def)
        node.attr.pop("_class", None)  # names ops that stay behind
        asked = tf.DeviceSpec.from_string(op.device)
        if task is not None and not asked.job:
            # The placer puts the op next to its resource, perhaps on "CPU:1".
            whole = tf.DeviceSpec.from_string(task).make_merged_spec(asked)
            node.device = whole.to_string()
        node.input[:] = inputs
        for before in op.control_inputs:
            if before.name in self._names:
                node.input.append(f"^{before.name}")
            else:
                self.waits.append((op.name, before))
        self._copied.append(op.name)

    def add_to(
        self, graph: tf.Graph, tensors: Sequence[str]
    ) -> tuple[dict[str, tf.Operation], list[tf.Tensor]]:
        """Add the nodes to a graph, which must be the default one.

        Returns:
            (the copy of each op by the op's name, the tensors with the given names).

        Raises:
            CannotPack: If TensorFlow does not accept the nodes.
        """
        self._nodes.versions.CopyFrom(graph.graph_def_versions)
        try:
            elements = tf.graph_util.import_graph_def(
                self._nodes,
                name=SCOPE,
                input_map=self._outside,
                return_elements=[
                    *self._copied,
                    *(n if ":" in n else f"{n}:0" for n in tensors),
                ],
            )
        except (TypeError, ValueError, tf.errors.OpError) as error:
            reason = str(error).partition("\n")[0]
            raise CannotPack(f"cannot be copied: {reason}") from error
        count = len(self._copied)
        copies = dict(zip(self._copied, elements[:count], strict=True))
        return copies, elements[count:]


def _check(part: Subgraph) -> None:
    """Raise CannotPack if a part of the graph has ops that cannot be copied."""
    for op in part.ops.values():
        if op.type in _FRAMES:
            raise CannotPack(f"has control flow of TensorFlow 1, {op.name!r}")
        if has_reference(op):
            raise CannotPack(f"has {mode.reference_variable(op.name)}")
    if waiting := part.waiting_handle():
        raise CannotPack(f"has a resource that waits for other ops, {waiting!r}")


_AttrValue = tf.compat.v1.AttrValue


class PackNodes:
    """Adds the nodes of packs to a GraphDef.

    Args:
        part: The GraphDef.
        name_of: Returns the name under which nodes of `part` refer to a tensor.
    """

    def __init__(
        self, part: tf.compat.v1.GraphDef, name_of: Callable[[tf.Tensor], str]
    ) -> None:
        self._part = part
        self._name_of = name_of

    def add(self, pack: Pack, name: str) -> dict[str, str]:
        """Add the nodes of a pack.

        Args:
            pack: The pack.
            name: The prefix for the names of the nodes.

        Returns:
            The name of each received tensor, by the name of the tensor that is sent.
        """
        types = {tensor.dtype for tensor in pack.tensors}
        # If a vector of unknown length is reshaped to a vector, TensorFlow's optimizer
        # assumes a new length, different from all others. Bytes avoid that, because
        # they are reshaped to a matrix.
        as_bytes = len(types) > 1 or not pack.is_known
        dtype = tf.uint8 if as_bytes else pack.tensors[0].dtype
        widths = [_width(tensor.dtype, dtype) for tensor in pack.tensors]
        here = _Task(self._part, f"{name}/send", pack.source)
        values = [self._name_of(tensor) for tensor in pack.tensors]
        flat = []
        for tensor, value in zip(pack.tensors, values, strict=True):
            if tensor.dtype != dtype:
                value = here.bitcast(value, tensor.dtype, tf.uint8)
            flat.append(here.reshape(value, dtype, here.int64([-1])))
        sent = here.concat(flat, dtype)
        there = _Task(self._part, f"{name}/receive", pack.destination)
        if pack.is_known:
            known = [[int(n or 0) for n in shape] for shape in pack.shapes]
            names = [there.int64(dims) for dims in known]
            both = zip(known, widths, strict=True)
            sizes = there.int64([int(np.prod(s, dtype=int)) * w for s, w in both])
        else:
            # TensorFlow's optimizer tracks shapes through exactly these ops. It fuses
            # ops whose shapes it knows to be equal.
            lengths = here.pack([here.size(each, dtype) for each in flat], tf.int64)
            dims = [
                here.shape(value, tensor.dtype)
                for tensor, value in zip(pack.tensors, values, strict=True)
            ]
            numbers = here.concat([lengths, *dims], tf.int64)
            start = len(flat)
            sizes = there.slice(numbers, tf.int64, 0, start)
            names = []
            for shape in pack.shapes:
                names.append(there.slice(numbers, tf.int64, start, len(shape)))
                start += len(shape)
        parts = there.split(sent, dtype, sizes, len(flat))
        arrived = {}
        for tensor, width, dims_name, value in zip(
            pack.tensors, widths, names, parts, strict=True
        ):
            is_cast = tensor.dtype != dtype
            if is_cast and width > 1:
                dims_name = there.concat([dims_name, there.int64([width])], tf.int64)
            value = there.reshape(value, dtype, dims_name)
            if is_cast:
                value = there.bitcast(value, tf.uint8, tensor.dtype)
            arrived[tensor.name] = value
        return arrived


def _width(dtype: tf.DType, sent_as: tf.DType) -> int:
    """Return the number of sent elements per element of `dtype`."""
    return 1 if dtype == sent_as else dtype.size


class _Task:
    """Adds nodes that run in one task.

    Each method returns the name of the node's output.
    """

    def __init__(self, part: tf.compat.v1.GraphDef, prefix: str, task: str) -> None:
        self._part = part
        self._prefix = prefix
        self._device = f"{task}/device:CPU:0"
        self._count = 0

    def _add(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        self._count += 1
        name = f"{self._prefix}/{op}_{self._count}"
        node = self._part.node.add(
            name=name, op=op, device=self._device, input=list(inputs)
        )
        for key, value in attributes.items():
            node.attr[key].CopyFrom(_attribute(value))
        return name

    def int64(self, values: Sequence[int]) -> str:
        return self._constant(np.array(values, np.int64))

    def _constant(self, value: np.ndarray) -> str:
        proto = tf.make_tensor_proto(value)
        return self._add("Const", [], dtype=tf.as_dtype(value.dtype), value=proto)

    def _axis(self) -> str:
        return self._constant(np.array(0, np.int32))

    def reshape(self, value: str, dtype: tf.DType, dims: str) -> str:
        return self._add("Reshape", [value, dims], T=dtype, Tshape=tf.int64)

    def shape(self, value: str, dtype: tf.DType) -> str:
        return self._add("Shape", [value], T=dtype, out_type=tf.int64)

    def slice(self, value: str, dtype: tf.DType, start: int, size: int) -> str:
        bounds = [self.int64([start]), self.int64([size])]
        return self._add("Slice", [value, *bounds], T=dtype, Index=tf.int64)

    def bitcast(self, value: str, dtype: tf.DType, to: tf.DType) -> str:
        return self._add("Bitcast", [value], T=dtype, type=to)

    def size(self, value: str, dtype: tf.DType) -> str:
        return self._add("Size", [value], T=dtype, out_type=tf.int64)

    def pack(self, values: Sequence[str], dtype: tf.DType) -> str:
        return self._add("Pack", values, N=len(values), T=dtype, axis=0)

    def concat(self, values: Sequence[str], dtype: tf.DType) -> str:
        if len(values) == 1:
            return values[0]
        inputs = [*values, self._axis()]
        return self._add("ConcatV2", inputs, N=len(values), T=dtype, Tidx=tf.int32)

    def split(self, value: str, dtype: tf.DType, sizes: str, count: int) -> list[str]:
        name = self._add(
            "SplitV",
            [value, sizes, self._axis()],
            num_split=count,
            T=dtype,
            Tlen=tf.int64,
        )
        return [f"{name}:{index}" for index in range(count)]


def _attribute(value: Any) -> tf.compat.v1.AttrValue:
    if isinstance(value, tf.DType):
        return _AttrValue(type=value.as_datatype_enum)
    if isinstance(value, int):
        return _AttrValue(i=value)
    return _AttrValue(tensor=value)
