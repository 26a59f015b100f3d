"""What hooks ask for beyond a step is what stock gives them, and is run as often."""

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

tf1 = tf.compat.v1
train = tf1.train


def follow(numbers):
    """Train a weight to be near a series of numbers.

    Returns:
        The weight, what it is before the step, the loss, and the train op.
    """
    step = train.get_or_create_global_step()
    weight = tf1.get_variable("weight", [], initializer=tf1.zeros_initializer())
    before = weight.read_value()
    # In stock, nothing but luck keeps hooks from reading them after their change.
    reads = [training_util._get_or_create_global_step_read(), step._graph_element]
    with tf.control_dependencies([before, *reads]):
        number = tf1.data.make_one_shot_iterator(numbers).get_next()
    loss = tf.square(weight - tf.cast(number, tf.float32))
    train_op = train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return weight, before, loss, train_op


def log_every_fifth(**tensors):
    return train.LoggingTensorHook(tensors, 5)


@pytest.mark.parametrize("steps_per_run", [2, 100])
def test_what_waits_for_the_step_is_stocks_step_by_step(steps_per_run, train_in_a_loop):
    def build():
        weight, _, loss, train_op = follow(tf.data.Dataset.range(23))
        with tf.control_dependencies([train_op]):
            after = weight.read_value()
        tf1.summary.scalar("after", after)
        return [train_op, loss], [log_every_fifth(after=after)]

    intervals = {"save_summaries_steps": 7, "save_checkpoint_steps": 23}
    stock, last = train_in_a_loop(build, **intervals)
    ours, our_last = train_in_a_loop(build, steps_per_run, **intervals)
    assert (ours, our_last) == (stock, last)
    assert stock.error is None


def count_calls(loss):
    calls = tf1.get_variable("calls", [], tf.int32, tf1.zeros_initializer())
    return calls.assign_add(1).value()


def average(loss):
    return tf1.metrics.mean(loss)[1]


def take_a_batch(loss):
    batches = tf.data.Dataset.range(1000)
    return tf1.data.make_one_shot_iterator(batches).get_next()


def draw(loss):
    return tf.random.uniform([])


@pytest.mark.parametrize("steps_per_run", [3, 100])
@pytest.mark.parametrize("make", [count_calls, average, take_a_batch, draw])
def test_what_changes_something_beside_the_step_is_run_as_often_as_in_stock(
    make, steps_per_run, train_in_a_loop
):
    def build():
        _, before, loss, train_op = follow(tf.data.Dataset.range(23))
        return [train_op, loss], [log_every_fifth(before=before, seen=make(loss))]

    stock, last = train_in_a_loop(build)
    assert train_in_a_loop(build, steps_per_run) == (stock, last)
    assert stock.error is None
    assert sum("seen = " in line for line in stock.log) == 5
