"""What a Saver saves, read from the ops that it has put into the graph."""

import dataclasses
from typing import Any

from tensorflow.python.framework import tensor_util


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """One tensor that a Saver saves.

    Attributes:
        name: Its name in the checkpoint.
        slice_spec: Which part of a partitioned variable it is, as SaveV2 takes it; ""
            for a whole one.
        tensor: The `tf.Tensor`.
    """

    name: str
    slice_spec: str
    tensor: Any

    @property
    def shape(self):
        """Shape of the whole variable, as a list, or None if that is not known."""
        if self.slice_spec:
            return [int(size) for size in self.slice_spec.split()[:-1]]
        shape = self.tensor.shape
        return shape.as_list() if shape.is_fully_defined() else None


def saved_by(saver, graph):
    """Give what `saver` saves, or None if that cannot be told.

    Args:
        saver: A built `tf.compat.v1.train.Saver` that writes the V2 format.
        graph: The graph it was built in.

    Returns:
        List of `Saved`.
    """
    end = graph.get_tensor_by_name(saver.saver_def.save_tensor_name).op
    found, pending, seen = [], [end], set()
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type != "SaveV2":
            pending += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
            continue
        names, slices = (tensor_util.constant_value(t) for t in op.inputs[1:3])
        if names is None or slices is None:
            return None
        found += [
            Saved(name=name.decode(), slice_spec=spec.decode(), tensor=tensor)
            for name, spec, tensor in zip(names, slices, op.inputs[3:], strict=True)
        ]
    return found or None
