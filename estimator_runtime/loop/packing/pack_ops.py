"""The ops that send the tensors of a pack as one, and take them apart again.

All tensors are sent as bytes. A vector of unknown length that is reshaped to a vector
gets a new length from TensorFlow's optimizer, different from all others; bytes avoid
that, because they are reshaped to a matrix. The shapes of tensors of unknown size are
sent as well. TensorFlow's optimizer tracks shapes through exactly these ops, and it
fuses ops whose shapes it knows to be equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from estimator_runtime.loop.packing.transfers import Pack

_raw = tf.raw_ops


def add_pack(pack: Pack, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Add the ops of a pack to the default graph.

    Args:
        pack: The pack.
        tensors: What is to be sent in place of its tensors.

    Returns:
        The tensors that arrive, in the same order.
    """
    with tf.device(f"{pack.source}/device:CPU:0"):
        flat = [
            _raw.Reshape(tensor=_raw.Bitcast(input=each, type=tf.uint8), shape=[-1])
            for each in tensors
        ]
        sent = _concat(flat)
        numbers = None if pack.is_known else _numbers(flat, tensors)
    with tf.device(f"{pack.destination}/device:CPU:0"):
        if numbers is None:
            shapes = [tf.constant(shape, tf.int64) for shape in pack.shapes]
            sizes = tf.constant(
                [
                    int(np.prod(shape, dtype=int)) * each.dtype.size
                    for shape, each in zip(pack.shapes, tensors, strict=True)
                ],
                tf.int64,
            )
        else:
            sizes, *shapes = _take_apart(numbers, pack)
        parts = _raw.SplitV(
            value=sent, size_splits=sizes, axis=0, num_split=len(tensors)
        )
        return [_received(*each) for each in zip(parts, shapes, tensors, strict=True)]


def _numbers(flat: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the sizes of tensors in bytes and then their shapes, as one vector."""
    sizes = [_raw.Size(input=each, out_type=tf.int64) for each in flat]
    shapes = [_raw.Shape(input=each, out_type=tf.int64) for each in tensors]
    return _concat([_raw.Pack(values=sizes, axis=0), *shapes])


def _take_apart(numbers: tf.Tensor, pack: Pack) -> list[tf.Tensor]:
    """Return the sizes and the shapes that `_numbers` has joined."""
    lengths = [len(pack.tensors), *map(len, pack.shapes)]
    starts = np.cumsum([0, *lengths[:-1]])
    return [
        _raw.Slice(
            input=numbers,
            begin=tf.constant([start], tf.int64),
            size=tf.constant([length], tf.int64),
        )
        for start, length in zip(starts, lengths, strict=True)
    ]


def _received(part: tf.Tensor, shape: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Return a tensor of the type of `like` from its bytes."""
    if like.dtype.size > 1:
        shape = _concat([shape, tf.constant([like.dtype.size], tf.int64)])
    return _raw.Bitcast(input=_raw.Reshape(tensor=part, shape=shape), type=like.dtype)


def _concat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return values[0] if len(values) == 1 else _raw.ConcatV2(values=values, axis=0)
