"""Rows that are in memory, whose batches need no session of the inputs.

To predict a row takes a millisecond, to make a session for it and to run it ten. These
inputs yield what NumPy yields: `numpy_input_fn` in the order of its rows, and datasets
of constants, from `from_tensors` or from `from_tensor_slices(...).batch(...)`.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_estimator.python.estimator import util
from tensorflow_estimator.python.estimator.inputs import numpy_io


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """All rows of one tensor of the inputs.

    Attributes:
        dtype: The type of the tensor.
        shape: The static shape of a batch of it.
        rows: The values.
    """

    dtype: tf.DType
    shape: tf.TensorShape
    rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class Rows:
    """Inputs of a prediction that are in memory.

    Attributes:
        features: Columns, in the structure in which model_fn gets tensors.
        batch_size: Rows of a batch; None if all are one batch.
        drop_remainder: Whether a last batch with fewer rows is left out.
    """

    features: Any
    batch_size: int | None = None
    drop_remainder: bool = False

    def batches(self, columns: Sequence[Column]) -> Iterator[list[np.ndarray]]:
        """Yield the values of some columns, batch by batch."""
        if self.batch_size is None:
            yield [each.rows for each in columns]
            return
        count = len(tf.nest.flatten(self.features)[0].rows)
        end = count - self.batch_size + 1 if self.drop_remainder else count
        for first in range(0, end, self.batch_size):
            yield [each.rows[first : first + self.batch_size] for each in columns]


_NUMPY_INPUT_FN = next(
    each
    for each in inspect.unwrap(numpy_io.numpy_input_fn).__code__.co_consts
    if isinstance(each, types.CodeType)
)


def of_function(input_fn: Callable[..., Any]) -> Rows | None:
    """Return the rows of a `numpy_input_fn`; None for another function, or labels."""
    if getattr(input_fn, "__code__", None) is not _NUMPY_INPUT_FN:
        return None
    given = inspect.getclosurevars(input_fn).nonlocals
    x, batch_size = given["x"], given["batch_size"]
    arrays = list(x.values()) if isinstance(x, dict) else [x]
    is_simple = (
        given["y"] is None
        and not given["shuffle"]
        and (given["num_epochs"], given["num_threads"]) == (1, 1)
        and type(batch_size) is int
        and batch_size > 0
        and all(map(_has_rows, arrays))
        and len({len(each) for each in arrays}) == 1
    )
    if not is_simple:
        return None
    if isinstance(x, dict):
        return Rows({name: _column(x[name]) for name in sorted(x)}, batch_size)
    return Rows(_column(x), batch_size)


def _has_rows(array: Any) -> bool:
    is_array = type(array) is np.ndarray and array.dtype.isnative
    return (
        is_array and array.dtype.kind in "bfiuOSU" and array.ndim > 0 and array.size > 0
    )


def _column(array: np.ndarray) -> Column:
    dtype = tf.as_dtype(array.dtype)
    rows = array.astype(object) if dtype == tf.string else array
    return Column(dtype, tf.TensorShape([None, *array.shape[1:]]), rows)


def of_dataset(dataset: Any) -> Rows | None:
    """Return the rows of a dataset of constants; None for anything else."""
    if not isinstance(dataset, tf.data.Dataset):
        return None
    op, size, drop = tf.data.experimental.to_variant(dataset).op, None, False
    source = "TensorDataset"
    if op.type == "BatchDatasetV2":
        size, drop = map(tf.get_static_value, op.inputs[1:])
        op, source = op.inputs[0].op, "TensorSliceDataset"
        if size is None or drop is None:
            return None
    specs = tf.nest.flatten(dataset.element_spec)
    is_constant = all(each.op.type == "Const" for each in op.inputs)
    if op.type != source or not is_constant or len(specs) != len(op.inputs):
        return None
    if any(type(spec) is not tf.TensorSpec for spec in specs):
        return None
    columns = [
        Column(spec.dtype, spec.shape, tf.get_static_value(tensor))
        for spec, tensor in zip(specs, op.inputs, strict=True)
    ]
    result = tf.nest.pack_sequence_as(dataset.element_spec, columns)
    features, _ = util.parse_iterator_result(result)
    return Rows(features, size and int(size), bool(drop))
