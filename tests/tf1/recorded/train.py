"""A program of TensorFlow 1, whose checkpoint and results TensorFlow 1.15.5 recorded.

Recorded with Python 3.7 by: python train.py model 20 recorded.json
"""

import itertools
import json
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, rnn

tf.logging.set_verbosity(tf.logging.ERROR)


def model_fn(features, labels, mode):
    training = mode == tf.estimator.ModeKeys.TRAIN
    table = tf.get_variable("table", [10, 3])
    words = tf.nn.embedding_lookup(table, features["words"])
    _, state = tf.nn.dynamic_rnn(
        rnn.BasicLSTMCell(4), words, features["length"], dtype=tf.float32
    )
    net = tf.layers.dense(features["x"], 5, activation=tf.nn.relu)
    net = tf.layers.batch_normalization(net, training=training)
    net = layers.fully_connected(tf.concat([net, state.h], 1), 4)
    net = layers.layer_norm(net)
    logits = tf.layers.dense(net, 1, name="logits")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.mean_squared_error(labels, logits)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.AdamOptimizer(0.01).minimize(
            loss, tf.train.get_global_step()
        )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    draw = np.random.RandomState(7)
    features = {
        "x": draw.normal(size=[8, 4]).astype(np.float32),
        "words": draw.randint(10, size=[8, 6]),
        "length": draw.randint(1, 7, size=[8]),
    }
    data = (features, draw.normal(size=[8]).astype(np.float32))
    dataset = tf.data.Dataset.from_tensors(data).repeat()
    return dataset.make_one_shot_iterator().get_next()


class Losses(tf.train.SessionRunHook):
    def __init__(self):
        self.values = []

    def begin(self):
        self.loss = tf.losses.get_losses()[0]

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.values.append(float(run_values.results))


def predictions(estimator):
    first = itertools.islice(estimator.predict(input_fn), 8)
    return [float(each["logits"]) for each in first]


def main(folder, steps, path):
    config = tf.estimator.RunConfig(tf_random_seed=3, save_checkpoints_steps=1000)
    estimator = tf.estimator.Estimator(model_fn, folder, config)
    if int(steps):
        estimator.train(input_fn, steps=int(steps))
    names = {
        name: list(estimator.get_variable_value(name).shape)
        for name in estimator.get_variable_names()
    }
    result = {"variables": names, "predictions": predictions(estimator)}
    losses = Losses()
    # After the checkpoint that was kept.
    estimator.train(input_fn, [losses], steps=5)
    result.update(losses=losses.values, predictions_after=predictions(estimator))
    with open(path, "w") as file:
        json.dump(result, file, indent=1, sort_keys=True)


main(*sys.argv[1:])
