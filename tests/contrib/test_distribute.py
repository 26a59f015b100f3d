"""Strategies of `tf.contrib.distribute`, with their arguments of TensorFlow 1."""

import os

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.errors import ConfigError
from estimator_runtime.tf1.contrib.distribute import MirroredStrategy

estimator_runtime.install()
tf1 = tf.compat.v1


def test_an_estimator_trains_with_a_mirrored_strategy_of_no_gpus(tmp_path):
    def model_fn(features, labels, mode):
        w = tf1.get_variable("w", initializer=1.0)
        loss = tf.reduce_mean(w * features)
        train_op = tf1.train.GradientDescentOptimizer(0.5).minimize(
            loss, tf1.train.get_global_step()
        )
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = tf.estimator.RunConfig(train_distribute=MirroredStrategy(num_gpus=0))
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
        MirroredStrategy(**kwargs)
