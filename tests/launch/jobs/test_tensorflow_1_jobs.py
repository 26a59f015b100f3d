"""A program of TensorFlow 1, untouched, as a cluster on this machine."""

import re

import pytest
import tensorflow as tf

pytestmark = pytest.mark.long("a whole job of four tasks")

PROGRAM = """
import numpy as np
import tensorflow as tf
import model

flags = tf.app.flags
flags.DEFINE_string("model_dir", None, "the folder of the checkpoints")
FLAGS = flags.FLAGS


def input_fn():
    x = np.arange(60, dtype=np.float).reshape(20, 3).astype("f") / 60
    data = tf.data.Dataset.from_tensor_slices(({"x": x}, x.sum(1)))
    return data.repeat().batch(5).make_one_shot_iterator().get_next()


def main(_):
    config = tf.estimator.RunConfig(FLAGS.model_dir, save_checkpoints_steps=100)
    estimator = tf.estimator.Estimator(model.model_fn, config=config)
    kind = tf.get_variable("kind", []).op.type
    print("mode", tf.executing_eagerly(), hasattr(tf, "contrib"), kind)
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=200),
        tf.estimator.EvalSpec(input_fn, steps=2, start_delay_secs=0, throttle_secs=0),
    )


if __name__ == "__main__":
    tf.app.run()
"""
MODEL = """
import tensorflow as tf


def model_fn(features, labels, mode):
    y = tf.layers.dense(tf.layers.dense(features["x"], 4, tf.nn.relu), 1)[:, 0]
    loss = tf.losses.mean_squared_error(labels, y)
    train_op = tf.train.AdagradOptimizer(0.1).minimize(
        loss, tf.train.get_global_step()
    )
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
"""


@pytest.mark.parametrize(
    "options, kind",
    [
        ((), "VariableV2"),
        pytest.param(
            ("--tf1-resource-variables", "--cold"),
            "VarHandleOp",
            id="resource variables, each task a new process",
        ),
    ],
)
def test_the_tasks_of_a_cluster_are_in_tensorflow_1_mode(
    launch, tmp_path, options, kind
):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "model.py").write_text(MODEL)
    cluster = ("--workers", "2", "--ps", "1", "--evaluator")
    model_dir = tmp_path / "model"
    job = launch("--tf1", *cluster, *options, "train.py", f"--model_dir={model_dir}")
    assert job.end() == 0, job.text
    tasks = re.findall(rf"^(\w+(?: \d)?) +\| mode False True {kind}$", job.text, re.M)
    assert sorted(tasks) == ["chief", "evaluator", "ps 0", "worker 0", "worker 1"]
    newest = tf.train.load_checkpoint(tf.train.latest_checkpoint(model_dir))
    assert newest.get_tensor("global_step") >= 200
    assert sorted(newest.get_variable_to_shape_map()) == [
        "dense/bias",
        "dense/bias/Adagrad",
        "dense/kernel",
        "dense/kernel/Adagrad",
        "dense_1/bias",
        "dense_1/bias/Adagrad",
        "dense_1/kernel",
        "dense_1/kernel/Adagrad",
        "global_step",
    ]
