"""The files of a checkpoint are, byte for byte, those that TensorFlow writes."""

import os

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.checkpoint.save.snapshot import Saved
from estimator_runtime.checkpoint.tensor_bundle.writer import BundleWriter

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]


def array_of(shape, dtype, seed=0):
    numbers = np.random.default_rng(seed).integers(0, 100, shape)
    return numbers.astype(tf.as_dtype(dtype).as_numpy_dtype)


class StockWriter:
    """Writes with TensorFlow's save op."""

    def __init__(self, saved):
        self._saved = saved

    def write(self, prefix, arrays):
        tensors = [each.tensor for each in self._saved]
        save = tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=[each.name for each in self._saved],
            shape_and_slices=[each.slice_spec for each in self._saved],
            tensors=tensors,
        )
        with tf.compat.v1.Session() as session:
            session.run(save, dict(zip(tensors, arrays, strict=True)))


def written_by(writer, folder, arrays):
    """Return name to content of the files that a writer makes of arrays by name."""
    with tf.Graph().as_default():
        saved = [
            Saved(
                name=name,
                slice_spec="",
                tensor=tf.compat.v1.placeholder(tf.as_dtype(array.dtype)),
            )
            for name, array in arrays.items()
        ]
        os.makedirs(folder)
        prefix = os.path.join(folder, "model.ckpt-1")
        writer(saved).write(prefix, list(arrays.values()))
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def check_equal(tmp_path, arrays):
    ours = written_by(BundleWriter, tmp_path / "ours", arrays)
    stock = written_by(StockWriter, tmp_path / "stock", arrays)
    assert sorted(ours) == ["model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"]
    assert ours == stock


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_type_is_written_as_tensorflow_writes_it(tmp_path, dtype):
    check_equal(
        tmp_path,
        {
            "matrix": array_of([3, 5], dtype),
            "scalar": array_of([], dtype),
            "empty": array_of([0, 4], dtype),
            "a/long/name/_1": array_of([7], dtype),
        },
    )


def test_what_is_larger_than_a_chunk_is_written_as_tensorflow_writes_it(tmp_path):
    check_equal(tmp_path, {"large": array_of([3_000_001], "float32"), "b": np.ones(1)})


def test_an_array_with_gaps_is_written_as_tensorflow_writes_it(tmp_path):
    check_equal(tmp_path, {"columns": array_of([40, 30], "float32").T[::2]})


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33, 3000])
def test_an_index_of_any_size_is_written_as_tensorflow_writes_it(tmp_path, count):
    # 3,000 make several blocks; names share beginnings, and are not in order.
    names = [
        f"layer_{7919 * i % count}/{'deep/' * (i % 7)}kernel" for i in range(count)
    ]
    check_equal(tmp_path, {name: np.float32(i) for i, name in enumerate(names)})


def test_names_of_all_bytes_are_written_as_tensorflow_writes_them(tmp_path):
    rng = np.random.default_rng(3)
    names = {
        "".join(map(chr, rng.choice([1, 65, 66, 0x7F, 0xFF, 0x20AC], size)))
        for size in rng.integers(1, 12, 3000)
    }
    check_equal(tmp_path, {name: np.int32(1) for name in sorted(names)})


def test_texts_are_left_to_tensorflow(tmp_path):
    arrays = {"words": np.array([b"a", b"", b"long" * 99], object), "b": np.ones(2)}
    assert written_by(BundleWriter, tmp_path / "ours", arrays) == written_by(
        StockWriter, tmp_path / "stock", arrays
    )
