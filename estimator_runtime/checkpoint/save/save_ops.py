"""The tensors that a Saver saves, read from the ops that it has added to the graph."""

import dataclasses
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """One tensor that a Saver saves.

    Attributes:
        name: Its name in the checkpoint.
        slice_spec: The part of a partitioned variable that it is, in SaveV2's format;
            "" for a whole variable.
        tensor: The `tf.Tensor`.
    """

    name: str
    slice_spec: str
    tensor: Any

    @property
    def shape(self) -> list[int] | None:
        """Shape of the whole variable, or None if it is not known."""
        if self.slice_spec:
            return [int(size) for size in self.slice_spec.split()[:-1]]
        shape = self.tensor.shape
        return shape.as_list() if shape.is_fully_defined() else None


def saved_by(saver: Any, graph: Any) -> list[Saved] | None:
    """Return the tensors that a Saver saves, or None if they are not known.

    Args:
        saver: A built `tf.compat.v1.train.Saver` that writes the V2 format.
        graph: The `tf.Graph` that it was built in.
    """
    end = graph.get_tensor_by_name(saver.saver_def.save_tensor_name).op
    found: list[Saved] = []
    pending = [end]
    seen: set[Any] = set()
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type != "SaveV2":
            pending += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
            continue
        names, slices = (tf.get_static_value(t) for t in op.inputs[1:3])
        if names is None or slices is None:
            return None
        found += [
            Saved(name=name.decode(), slice_spec=spec.decode(), tensor=tensor)
            for name, spec, tensor in zip(names, slices, op.inputs[3:], strict=True)
        ]
    return found or None
