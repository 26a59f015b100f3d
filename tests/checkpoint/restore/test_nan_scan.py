"""Which checkpoint has values that are NaN, told from the files alone."""

import math
import os

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.checkpoint.checkpoint import Checkpoint, checkpoints_in
from estimator_runtime.checkpoint.restore import nan_scan

tf1 = tf.compat.v1


@pytest.fixture
def save(tmp_path):
    """Return a function that saves values, of (step, name to value); gives the path."""

    def save(step, **values):
        with tf.Graph().as_default(), tf1.Session() as session:
            made = [tf1.Variable(value, name=name) for name, value in values.items()]
            session.run([each.initializer for each in made])
            saver = tf1.train.Saver(save_relative_paths=True)
            saver.recover_last_checkpoints(
                [each.prefix for each in checkpoints_in(str(tmp_path))]
            )
            return saver.save(session, str(tmp_path / "model.ckpt"), step)

    return save


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
)
@pytest.mark.parametrize("place", [0, 50, 99])
def test_one_value_of_many_that_is_nan_is_found(save, dtype, place):
    values = np.full(100, -math.inf)
    good = save(1, all=tf.cast(values, dtype).numpy())
    values[place] = -math.nan
    bad = save(2, all=tf.cast(values, dtype).numpy(), also=1.0)
    assert (nan_scan.first(good), nan_scan.first(bad)) == (None, "all")


def test_a_value_that_is_nan_is_found_in_what_takes_several_reads(save):
    values = np.zeros(9 << 20, np.float32)  # 36 MiB
    values[-1] = math.nan
    assert nan_scan.first(save(1, all=values)) == "all"


def test_what_is_no_number_with_a_point_is_never_nan(save):
    # As 32 bits each of these would be NaN.
    path = save(1, whole=[-1], words=[b"\xff" * 8], truth=[True], none=[[]])
    assert nan_scan.first(path) is None


def test_a_part_of_a_variable_is_looked_at_like_a_whole_one(tmp_path):
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.get_variable(
            "parts",
            initializer=tf.constant([1.0, 2.0, 3.0, math.nan]),
            partitioner=tf1.fixed_size_partitioner(2),
        )
        session.run(tf1.global_variables_initializer())
        path = tf1.train.Saver().save(session, str(tmp_path / "model.ckpt"), 1)
    assert nan_scan.first(path) == "slice"


def test_the_newest_without_a_nan_is_found_and_those_passed_over_are_named(
    save, tmp_path
):
    good = save(1, weight=1.0)
    bad = [save(step, bias=1.0, weight=math.nan) for step in (2, 3)]
    found, spoilt = nan_scan.newest_without(str(tmp_path))
    assert (found.prefix, found.step) == (good, 1)
    assert spoilt == {bad[1]: "weight", bad[0]: "weight"}
    assert list(spoilt) == bad[::-1]
    for path in Checkpoint.at(good).files:
        os.remove(path)
    assert nan_scan.newest_without(str(tmp_path)) == (None, spoilt)
