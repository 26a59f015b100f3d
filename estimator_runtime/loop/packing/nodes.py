"""Adds the ops that combine tensors in one task and split them in another.

The elements are only moved: no op here computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.loop.packing.transfers import Pack

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
