"""Finds the tensors that tasks send each other in a step, and which to send together.

If one task computes a tensor and another uses it, TensorFlow sends the tensor in its
own call. Several tensors may be packed, which means sent as one, under two conditions:
no tensor waits for anything that it would not have waited for otherwise, and no two
packs wait for each other. The rules are:

- Each op has a level: the number of borders between tasks on the longest path to it
  from the start of the step. All tensors of a pack have the same level, and are used
  at higher levels only. So no pack can wait for itself.
- Ops that may wait for another call, such as taking an element from a queue, must be
  the same before each tensor of a pack.
- A large tensor is sent alone, and the size of a pack is limited. Otherwise the first
  gradients would wait for the last ones, while stock TensorFlow sends gradients during
  the computation.
- A tensor of unknown size, such as one with a row for each example, may be large. It is
  packed only with other tensors of unknown size.

Copies of ops use the tensors from a pack. An op with its own state cannot be copied, so
its inputs are not packed. Strings are not packed either, because they have no fixed
size, nor are the terms of a sum of three or more. TensorFlow adds such terms in an
order that depends on which of their buffers it may overwrite, and that is different for
tensors from a pack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.order import ordered, predecessors
from estimator_runtime.loop.graph.subgraph import Subgraph
from estimator_runtime.tf_internals import op_kinds

# A tensor with more elements is sent alone.
_MAX_ELEMENTS = 1 << 16
# A pack of this size gets no more tensors. Sending it takes 1 ms over loopback.
MAX_BYTES = 1 << 20
# Larger constants are not copied to the task that uses them.
_MAX_CONSTANT_ELEMENTS = 1024
# The limits assume this for an unknown dimension, which is usually the batch size.
_USUAL_DIMENSION = 128
# A sum of this many terms is the same in any order.
_EXACT_TERMS = 2
_TYPES = """
    bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
"""
_PACKABLE = frozenset(map(tf.as_dtype, _TYPES.split()))

# The name of a tensor, and the task that uses it.
Key = tuple[str, str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pack:
    """Tensors that one task sends to another as a single tensor.

    Attributes:
        source: The task that computes them.
        destination: The task that uses them.
        tensors: The tensors, two or more.
        shapes: The static shape of each tensor, with None for an unknown dimension.
            Either all shapes are fully known, or none is. No dimension is known to be
            0.
    """

    source: str
    destination: str
    tensors: tuple[tf.Tensor, ...]
    shapes: tuple[tuple[int | None, ...], ...]

    @property
    def is_known(self) -> bool:
        """Whether the shapes are known, so that they do not have to be sent."""
        return None not in self.shapes[0]

    @property
    def count(self) -> int:
        """The number of tensors sent: 1, or 2 if the shapes are sent as well."""
        return 1 if self.is_known else 2


class StepTransfers:
    """The tensors that the tasks of a cluster send each other in a step.

    Args:
        step: The part of the graph that is the step.
        task_of: Returns the name of the task that runs an op, or None if that is not
            known.

    Attributes:
        step: As given.
        task_of: As given.
        ordered: The ops of the step, each after the ops that it depends on.
        levels: The level of each op, by its name.
        count: The number of tensors that cross from one known task to another.
        constants: Constants to copy to the task that uses them, by the key of the
            transfer.
        packs: The packs.
    """

    def __init__(
        self, step: Subgraph, task_of: Callable[[tf.Operation], str | None]
    ) -> None:
        self.step = step
        self.task_of = task_of
        self.ordered = ordered(step.ops)
        self.levels, self._waits = self._measure()
        self._fixed = self._find_fixed()
        self._shapes = _known_shapes(step)
        transfers, excluded = self._find_transfers()
        self.count = len(transfers)
        movable = {key: t for key, t in transfers.items() if key not in excluded}
        self.constants = {
            key: t.op for key, t in movable.items() if _is_small_constant(t.op)
        }
        self.packs = self._pack(
            {key: t for key, t in movable.items() if key not in self.constants}
        )

    @property
    def arriving(self) -> set[Key]:
        """The tensors that are replaced in a task: (the tensor's name, the task)."""
        packed = {
            (it.name, pack.destination) for pack in self.packs for it in pack.tensors
        }
        return packed | self.constants.keys()

    @property
    def packed_count(self) -> int:
        """The number of tensors that cross between known tasks once packed."""
        saved = sum(len(pack.tensors) - pack.count for pack in self.packs)
        return self.count - saved - len(self.constants)

    def _measure(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return each op's level, and a bit mask of earlier ops that may wait."""
        levels: dict[str, int] = {}
        waits: dict[str, int] = {}
        bits = 0
        for op in self.ordered:
            task = self.task_of(op)
            level = wait = 0
            for before in predecessors(op):
                if before.name in levels:
                    other = self.task_of(before)
                    is_border = task is None or task != other
                    level = max(level, levels[before.name] + is_border)
                    wait |= waits[before.name]
            if op_kinds.of(op.type).may_wait:
                wait |= 1 << bits
                bits += 1
            levels[op.name], waits[op.name] = level, wait
        return levels, waits

    def _find_fixed(self) -> set[str]:
        """Return the names of the ops that must not be copied.

        These are the ops with their own state, and all ops that they depend on: if one
        of the latter were copied, both it and its copy would run.
        """
        fixed: set[str] = set()
        for op in reversed(self.ordered):
            if op.name in fixed or ops.has_only_state(op):
                fixed.add(op.name)
                fixed.update(before.name for before in predecessors(op))
        return fixed

    def _find_transfers(self) -> tuple[dict[Key, tf.Tensor], set[Key]]:
        """Return the tensors that cross, and the keys of those to leave unchanged."""
        transfers: dict[Key, tf.Tensor] = {}
        excluded: set[Key] = set()
        for op in self.ordered:
            task = self.task_of(op)
            for tensor in op.inputs:
                source = self.task_of(tensor.op)
                if task is None or source in (None, task):
                    continue
                if tensor.op.name not in self.step.ops:
                    continue  # the handle of a resource
                key = tensor.name, task
                if key not in transfers:
                    transfers[key] = tensor
                    if self._is_term(tensor):
                        excluded.add(key)
                if op.name in self._fixed:
                    excluded.add(key)
        return transfers, excluded

    def _is_term(self, tensor: tf.Tensor) -> bool:
        """Return whether a tensor is a term in a sum of three or more, in any task."""
        pending, seen = [tensor], set()
        while pending:
            each = pending.pop()
            for op in each.consumers():
                if op.name in seen or op.name not in self.step.ops:
                    continue
                seen.add(op.name)
                if op_kinds.of(op.type).sums and self._count_terms(op) > _EXACT_TERMS:
                    return True
                if op_kinds.of(op.type).returns_its_input:
                    pending.extend(op.outputs)
        return False

    def _count_terms(self, op: tf.Operation) -> int:
        """Return how many terms a sum and those TensorFlow may merge into it have."""
        sums, pending, terms = {op.name}, [op], 0
        while pending:
            each = pending.pop()
            inputs = [tensor.op for tensor in each.inputs]
            users = [user for tensor in each.outputs for user in tensor.consumers()]
            for other in (*inputs, *users):
                # TensorFlow removes an Identity between sums.
                is_joined = op_kinds.of(other.type).sums or other.type == "Identity"
                if is_joined and other.name in self.step.ops:
                    if other.name not in sums:
                        sums.add(other.name)
                        pending.append(other)
                elif other in inputs:
                    terms += 1
        return terms

    def _pack(self, transfers: Mapping[Key, tf.Tensor]) -> list[Pack]:
        """Return the packs that can be made from some transfers."""
        groups: dict[tuple[Any, ...], list[list[tf.Tensor]]] = {}
        sizes: dict[tuple[Any, ...], int] = {}
        place = {op.name: index for index, op in enumerate(self.ordered)}
        # In the order of computation, because a pack waits for its last tensor.
        in_order = sorted(transfers.items(), key=lambda item: place[item[1].op.name])
        for (_, destination), tensor in in_order:
            shape = self._shapes[tensor.name]
            if shape is None or not _is_packable(tensor.dtype, shape):
                continue
            name = tensor.op.name
            group = (
                self.task_of(tensor.op),
                destination,
                self.levels[name],
                self._waits[name],
                None in shape,
            )
            packs = groups.setdefault(group, [[]])
            if sizes.get(group, 0) >= MAX_BYTES:
                packs.append([])
                sizes[group] = 0
            packs[-1].append(tensor)
            size = _usual_elements(shape) * tensor.dtype.size
            sizes[group] = sizes.get(group, 0) + size
        made = [
            Pack(
                source=group[0],
                destination=group[1],
                tensors=tuple(tensors),
                shapes=tuple(self._shapes[each.name] or () for each in tensors),
            )
            for group, packs in groups.items()
            for tensors in packs
        ]
        return [pack for pack in made if len(pack.tensors) > pack.count]


def _is_packable(dtype: tf.DType, shape: tuple[int | None, ...]) -> bool:
    """Return whether a tensor can be packed and is small enough, by its static shape.

    Args:
        dtype: The type of the tensor.
        shape: The shape, with None for an unknown dimension.
    """
    if dtype.size == 1 and None in shape:
        return False  # its bytes would be a vector too: see `pack_ops`
    is_small = 0 not in shape and _usual_elements(shape) <= _MAX_ELEMENTS
    return is_small and dtype in _PACKABLE


def _usual_elements(shape: tuple[int | None, ...]) -> int:
    dims = [_USUAL_DIMENSION if n is None else n for n in shape]
    return int(np.prod(dims, dtype=np.int64))


def _is_small_constant(op: tf.Operation) -> bool:
    if op.type != "Const" or op.control_inputs:
        return False
    elements = op.outputs[0].shape.num_elements()
    return elements is not None and elements <= _MAX_CONSTANT_ELEMENTS


def _dims(shape: tf.TensorShape) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _known_shapes(step: Subgraph) -> dict[str, tuple[int | None, ...] | None]:
    """Return the shapes that can be inferred from the ops alone, by tensor name.

    A program can also set the shape of a tensor, but nothing enforces that shape.
    """
    resources = {t.op.name: t.op for t in step.handles.values()}
    part = step.graph_def()
    names = {node.name for node in part.node}
    for op in resources.values():
        for each in [op, *(t.op for t in op.inputs)]:
            if each.name not in names:
                names.add(each.name)
                part.node.add().CopyFrom(each.node_def)
                part.node[-1].attr.pop("_class", None)
    with tf.Graph().as_default() as scratch:
        tf.graph_util.import_graph_def(part, name="")
    return {
        tensor.name: _dims(tensor.shape)
        for name in step.ops
        for tensor in scratch.get_operation_by_name(name).outputs
    }
