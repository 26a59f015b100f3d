"""What real clusters say of the data that their tasks read."""

import pytest

_PROGRAM = """
import sys
import tensorflow as tf
import estimator_runtime as er
tf1 = tf.compat.v1

def model_fn(features, labels, mode):
    weight = tf1.get_variable("weight", [])
    loss = tf.reduce_mean((weight - tf.cast(features, tf.float32)) ** 2)
    step = tf1.train.get_or_create_global_step()
    train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

config = tf.estimator.RunConfig("model", tf_random_seed=3)

def data():
    dataset = tf.data.Dataset.range(100)
    if sys.argv[1] == "sharded":
        dataset = er.shard(dataset, config)
    return dataset.shuffle(100).repeat().batch(4)

tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(data, max_steps=100),
    tf.estimator.EvalSpec(data, steps=1),
)
"""
_SAID = (
    "launcher | WARNING: chief and worker 0 read the same batches in the same order. Give "
    "each its own part: import estimator_runtime; def input_fn(config): ... dataset = "
    "estimator_runtime.shard(dataset, config). The Estimator calls input_fn with its "
    "RunConfig\n"
)


@pytest.mark.parametrize("data, times", [("whole", 1), ("sharded", 0)])
def test_a_job_says_which_tasks_read_the_same_batches(launch, tmp_path, data, times):
    script = tmp_path / "train.py"
    script.write_text(_PROGRAM)
    job = launch("--workers", "1", "--ps", "1", script, data)
    assert job.end() == 0, job.text
    assert job.text.count(_SAID) == times, job.text
