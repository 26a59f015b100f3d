"""Transformations and strategies of tf.contrib take the arguments they had there."""

import os

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib import data, distribute
from estimator_runtime.errors import ConfigError

estimator_runtime.install()
tf1 = tf.compat.v1


def _elements(transformation, dataset=None):
    """Return the elements of a dataset, by default of the numbers from 0 to 4."""
    with tf1.Graph().as_default(), tf1.Session() as session:
        given = tf1.data.Dataset.range(5) if dataset is None else dataset()
        iterator = tf1.data.make_one_shot_iterator(given.apply(transformation))
        element, found = iterator.get_next(), []
        while True:
            try:
                found.append(session.run(element).tolist())
            except tf.errors.OutOfRangeError:
                return found


def _pairs():
    return tf1.data.Dataset.range(1, 4).map(lambda n: tf1.fill([n], n))


def test_a_batch_that_is_not_full_is_left_out():
    assert _elements(data.batch_and_drop_remainder(2)) == [[0, 1], [2, 3]]


def test_a_padded_batch_that_is_not_full_is_left_out():
    padded = data.padded_batch_and_drop_remainder(2, [None], np.int64(9))
    assert _elements(padded, _pairs) == [[[1, 9], [2, 2]]]


def test_datasets_are_read_by_turns():
    found = _elements(
        data.sloppy_interleave(lambda n: tf1.data.Dataset.from_tensors(n).repeat(2), 2)
    )
    assert sorted(found) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_shapes_of_elements_are_checked():
    def vectors():
        return tf1.data.Dataset.from_tensors([1, 2])

    right = data.assert_element_shape(tf.TensorShape([2]))
    assert _elements(right, vectors) == [[1, 2]]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="3"):
        _elements(data.assert_element_shape(tf.TensorShape([3])), vectors)


def test_an_estimator_trains_with_a_mirrored_strategy_of_no_gpus(tmp_path):
    def model_fn(features, labels, mode):
        w = tf1.get_variable("w", initializer=1.0)
        loss = tf.reduce_mean(w * features)
        train_op = tf1.train.GradientDescentOptimizer(0.5).minimize(
            loss, tf1.train.get_global_step()
        )
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    strategy = distribute.ContribMirroredStrategy(num_gpus=0)
    config = tf.estimator.RunConfig(train_distribute=strategy)
    trained = tf1.estimator.Estimator(model_fn, os.fspath(tmp_path), config)
    trained.train(lambda: tf1.data.Dataset.from_tensors([2.0]).repeat(), steps=3)
    assert trained.get_variable_value("w") == -2.0


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"num_gpus": 1, "num_gpus_per_worker": 1}, "give one of them"),
        ({"devices": ["/cpu:0"], "num_gpus": 1}, "give one of them"),
        ({"auto_shard_dataset": True}, "Dataset.shard"),
    ],
)
def test_arguments_of_a_strategy_that_contradict_each_other_are_refused(kwargs, text):
    with pytest.raises(ConfigError, match=text):
        distribute.ContribMirroredStrategy(**kwargs)
