"""A program of TensorFlow 1, untouched, as a cluster on this machine."""

import os
import re
import signal

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


# All of `values` equal the global step after each step.
_COUNTING = """
import os
import time

import tensorflow as tf


def model_fn(features, labels, mode):
    step = tf.train.get_global_step()
    values = tf.get_variable("values", initializer=tf.zeros([1000]))
    with tf.control_dependencies([tf.assign_add(values, tf.ones([1000]))]):
        train_op = tf.assign_add(step, 1).op
    return tf.estimator.EstimatorSpec(mode, loss=values[0], train_op=train_op)


class Hook(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        print("from", session.run(tf.train.get_global_step()), os.getpid(), flush=True)

    def before_run(self, context):
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, context, values):
        print("step", values.results, flush=True)
        time.sleep(0.02)
        while values.results >= 70 and not os.path.exists("finish"):
            time.sleep(0.02)


config = tf.estimator.RunConfig("model", save_checkpoints_steps=25)
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(
        lambda: tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(),
        max_steps=80,
        hooks=[Hook()],
    ),
    tf.estimator.EvalSpec(lambda: tf.data.Dataset.from_tensors(([1.0], [1.0])), steps=1),
)
"""


def _counts(model_dir):
    """Return the steps of all checkpoints, each of which holds values of its step."""
    steps = []
    for index in sorted(model_dir.glob("model.ckpt-*.index")):
        checkpoint = tf.train.load_checkpoint(str(index.with_suffix("")))
        steps.append(checkpoint.get_tensor("global_step"))
        assert set(checkpoint.get_tensor("values")) == {float(steps[-1])}
    return sorted(steps)


def test_a_chief_that_is_killed_goes_on_from_the_values_of_the_ps(launch, tmp_path):
    (tmp_path / "train.py").write_text(_COUNTING)
    job = launch("--tf1", "--workers", "0", "--ps", "1", "train.py")
    killed = int(job.wait_for(r"\| from 0 (\d+)$")[1])
    # Where it waits: a step that is cut short leaves the ps a part of its values.
    reached = int(job.wait_for(r"\| step (7\d)$")[1])
    os.kill(killed, signal.SIGKILL)
    (tmp_path / "finish").touch()
    assert job.end() == 0, job.text
    again = int(job.wait_for(r"\| from (\d+) \d+$", count=2)[1])
    assert again >= reached
    assert _counts(tmp_path / "model")[-1] == 80


def test_a_job_that_is_stopped_has_saved_its_last_step(launch, tmp_path):
    (tmp_path / "train.py").write_text(_COUNTING)
    job = launch("--tf1", "--workers", "0", "--ps", "1", "train.py")
    reached = int(job.wait_for(r"\| step (3\d)$")[1])
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 143, job.text
    assert _counts(tmp_path / "model")[-1] >= reached
