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
def test_a_variable_that_is_read_after_the_step_is_stocks_and_no_step_is_run_twice(
    steps_per_run, train_in_a_loop
):
    def build():
        weight, _, loss, train_op = follow(tf.data.Dataset.range(23))
        with tf.control_dependencies([train_op]):
            after = weight.read_value()
            step = train.get_global_step().read_value()
        with tf.control_dependencies([after]):
            later = tf.reduce_sum(weight.read_value() * 2)
        tf1.summary.scalar("after", after)
        return [train_op, loss], [log_every_fifth(after=after, step=step, later=later)]

    intervals = {"save_summaries_steps": 7, "save_checkpoint_steps": 23}
    stock, last = train_in_a_loop(build, **intervals)
    ours, our_last = train_in_a_loop(build, steps_per_run, **intervals)
    assert (ours, our_last) == (stock, last)
    assert stock.error is None
    assert sum("step = " in line for line in stock.log) == 5
    assert sum(tag == "after" for _, tag, _ in stock.summaries) == 4


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


def test_what_waits_for_the_step_is_run_after_it(train_in_a_loop, tmp_path):
    def lines(*steps_per_run):
        folder = tmp_path / str(steps_per_run)

        def build():
            number = tf1.data.make_one_shot_iterator(
                tf.data.Dataset.range(12)
            ).get_next()
            out = f"file://{folder}"
            with tf.control_dependencies([tf.print("step", number, output_stream=out)]):
                train_op = train.get_or_create_global_step().assign_add(1).op
            with tf.control_dependencies([train_op]):
                said = tf.print("said", output_stream=out)
            with tf.control_dependencies([said]):
                seen = tf.identity(1.0)
            return train_op, [log_every_fifth(seen=seen)]

        outcome, _ = train_in_a_loop(build, *steps_per_run)
        assert outcome.error is None
        return folder.read_text().splitlines()

    expected = [f"step {number}" for number in range(12)]
    for place in (1, 7, 13):
        expected.insert(place, "said")
    assert [lines(), lines(3), lines(100)] == [expected] * 3
