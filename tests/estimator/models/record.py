"""Trains two models and writes what another TensorFlow has to make of them.

    python tests/estimator/models/record.py tests/estimator/models/tf-2.15   # stock TensorFlow
    estimator-runtime run tests/estimator/models/record.py tests/estimator/models/tf-2.21

Each model leaves a checkpoint and a SavedModel; predictions.json is what it predicts.
"""

import json
import os
import shutil
import sys
import tempfile

import numpy as np
import tensorflow as tf

FEATURES = np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2)
LABELS = FEATURES @ np.array([[1.0], [-2.0]], np.float32)


def input_fn():
    data = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, LABELS))
    return data.repeat().batch(8)


def serving_input_fn():
    features = {"x": tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")}
    return tf.estimator.export.ServingInputReceiver(features, features)


def model_fn(features, labels, mode):
    hidden = tf.compat.v1.layers.dense(features["x"], 4, tf.nn.relu, name="hidden")
    prediction = tf.compat.v1.layers.dense(hidden, 1, name="line")
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"predictions": prediction}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.compat.v1.losses.mean_squared_error(labels, prediction)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.AdamOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def estimators():
    """Model name to a function that makes its Estimator in a model_dir."""
    column = tf.feature_column.numeric_column("x", shape=[2])
    return {
        "custom": lambda folder: tf.estimator.Estimator(model_fn, folder),
        "canned": lambda folder: tf.estimator.DNNRegressor(
            [4], [column], folder, optimizer="Adam"
        ),
    }


def predict(estimator, checkpoint=None):
    found = estimator.predict(lambda: input_fn().take(1), checkpoint_path=checkpoint)
    return [float(each["predictions"][0]) for each in found]


def record(name, make, folder):
    model_dir = tempfile.mkdtemp()
    estimator = make(model_dir)
    estimator.train(input_fn, steps=30)
    os.makedirs(folder)
    for suffix in ("index", "data-00000-of-00001"):
        shutil.copy(f"{model_dir}/model.ckpt-30.{suffix}", folder)
    export = estimator.export_saved_model(tempfile.mkdtemp(), serving_input_fn)
    shutil.copytree(export.decode(), f"{folder}/export")
    with open(f"{folder}/predictions.json", "w", encoding="utf-8") as file:
        json.dump(predict(estimator), file)


if __name__ == "__main__":
    for name, make in estimators().items():
        record(name, make, os.path.join(sys.argv[1], name))
