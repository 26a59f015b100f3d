"""The ops that make one tensor of several, and several of one, in another task.

The elements are only moved: no op here computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.loop.packing.transfers import Pack

_AttrValue = tf.compat.v1.AttrValue
# A length is sent as a 64-bit number.
_LENGTH_BYTES = 8


class PackNodes:
    """Adds the nodes of packs to a GraphDef.

    Args:
        part: The GraphDef.
        name_of: Returns the name by which nodes of `part` take a tensor.
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
            name: The prefix of their names.

        Returns:
            The names of the tensors that arrive, by the names of those that are sent.
        """
        both = zip(pack.tensors, pack.shapes, strict=True)
        # Those with an unknown length last, so that the known ones are one constant.
        parts = sorted(both, key=lambda each: None in each[1])
        unknown = sum(None in shape for _, shape in parts)
        types = {tensor.dtype for tensor, _ in parts}
        # Tensors of several types are sent as bytes, and so are lengths.
        as_bytes = len(types) > 1 or unknown > 1
        dtype = tf.uint8 if as_bytes else types.pop()
        here = _Task(self._part, f"{name}/send", pack.source)
        flat = []
        for tensor, _ in parts:
            value = self._name_of(tensor)
            if tensor.dtype != dtype:
                value = here.bitcast(value, tensor.dtype, tf.uint8)
            flat.append(here.reshape(value, dtype, [-1]))
        head = []
        if unknown > 1:
            lengths = [here.size(each, dtype) for each in flat[-unknown:]]
            packed = here.pack(lengths, tf.int64)
            as_uint8 = here.bitcast(packed, tf.int64, tf.uint8)
            head.append(here.reshape(as_uint8, tf.uint8, [-1]))
        sent = here.concat([*head, *flat], dtype)

        there = _Task(self._part, f"{name}/receive", pack.destination)
        widths = [_width(tensor.dtype, dtype) for tensor, _ in parts]
        known = [
            int(np.prod(shape, dtype=np.int64)) * width
            for (_, shape), width in zip(parts, widths, strict=True)
            if None not in shape
        ]
        if unknown > 1:
            front = _LENGTH_BYTES * unknown
            two = there.split(sent, dtype, there.int64([front, -1]), 2)
            rows = there.reshape(two[0], tf.uint8, [unknown, _LENGTH_BYTES])
            sizes = there.bitcast(rows, tf.uint8, tf.int64)
            if known:
                sizes = there.concat([there.int64(known), sizes], tf.int64)
            values = there.split(two[1], dtype, sizes, len(parts))
        else:
            sizes = there.int64([*known, *[-1] * unknown])
            values = there.split(sent, dtype, sizes, len(parts))
        arrived = {}
        for (tensor, shape), width, value in zip(parts, widths, values, strict=True):
            dims = [-1 if n is None else n for n in shape]
            is_cast = tensor.dtype != dtype
            if is_cast and width > 1:
                dims.append(width)
            value = there.reshape(value, dtype, dims)
            if is_cast:
                value = there.bitcast(value, tf.uint8, tensor.dtype)
            arrived[tensor.name] = value
        return arrived


def _width(dtype: tf.DType, sent_as: tf.DType) -> int:
    """Return how many elements an element of `dtype` is sent as."""
    return 1 if dtype == sent_as else dtype.size


class _Task:
    """Adds nodes that one task runs.

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

    def reshape(self, value: str, dtype: tf.DType, dims: Sequence[int]) -> str:
        return self._add("Reshape", [value, self.int64(dims)], T=dtype, Tshape=tf.int64)

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
