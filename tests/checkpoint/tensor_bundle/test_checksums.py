"""The checksums of a checkpoint's values, held against what TensorFlow has written."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.checkpoint.tensor_bundle import checksums

VALUES = {
    "large": np.arange(300_000, dtype=np.float64),
    "flags": np.array([True, False]),
    "words": np.array([["a", ""], ["of 300 bytes " * 25, "\u00e9"]]),
    "nothing": np.zeros([0, 3], np.int32),
    "one": np.float16(1.5),
}


@pytest.fixture
def prefix(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in VALUES.items():
            tf.compat.v1.get_variable(name, initializer=value)
        tf.compat.v1.get_variable(
            "parts",
            [40, 10],
            partitioner=tf.compat.v1.fixed_size_partitioner(3),
        )
        session.run(tf.compat.v1.global_variables_initializer())
        return tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))


def test_what_tensorflow_has_written_is_good(prefix):
    assert checksums.problem(prefix) is None


def test_each_byte_of_the_data_is_checked(prefix):
    path = f"{prefix}.data-00000-of-00001"
    with open(path, "rb") as file:
        good = file.read()
    places = {*range(0, len(good), 50_021), len(good) - 1}
    small = len(good) - VALUES["large"].nbytes
    places |= set(range(0, small, 7)) | set(range(len(good) - small, len(good), 7))
    for place in sorted(places):
        changed = bytearray(good)
        changed[place] ^= 16
        with open(path, "wb") as file:
            file.write(changed)
        assert checksums.problem(prefix), f"byte {place} of {len(good)}"
