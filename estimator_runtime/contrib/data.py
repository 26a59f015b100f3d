"""Functions of `tf.contrib.data` that became arguments of `tf.data`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = [
    "assert_element_shape",
    "batch_and_drop_remainder",
    "padded_batch_and_drop_remainder",
    "sloppy_interleave",
]

_Transformation = Callable[[Any], Any]


def batch_and_drop_remainder(batch_size: Any) -> _Transformation:
    """Return a transformation, for `Dataset.apply`, into batches of exactly one size.

    Args:
        batch_size: Number of elements of a batch; fewer at the end are left out.
    """
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> _Transformation:
    """Return a transformation into padded batches of exactly one size.

    Args:
        batch_size: Number of elements of a batch; fewer at the end are left out.
        padded_shapes: See `tf.data.Dataset.padded_batch`.
        padding_values: See there.
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def sloppy_interleave(
    map_func: Callable[..., Any], cycle_length: int, block_length: int = 1
) -> _Transformation:
    """Return a transformation that alternates between datasets, in no defined order.

    Args:
        map_func: Makes a dataset of an element.
        cycle_length: Number of datasets that are read at a time.
        block_length: Number of elements to take from one at a time.
    """
    return tf.compat.v1.data.experimental.parallel_interleave(
        map_func, cycle_length, block_length, sloppy=True
    )


def assert_element_shape(expected_shapes: Any) -> _Transformation:
    """Return a transformation that checks the shapes of elements.

    They are checked when an element is read, and known of the dataset from then on.

    Args:
        expected_shapes: A structure of `tf.TensorShape`, as that of the elements.
    """

    def check(*element: Any) -> Any:
        value = element[0] if len(element) == 1 else element
        return tf.nest.map_structure(
            lambda shape, each: tf.ensure_shape(each, shape), expected_shapes, value
        )

    return lambda dataset: dataset.map(check)
