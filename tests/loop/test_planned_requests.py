"""Feeds, run options and run metadata of the caller and of hooks reach the step.

Every test runs on TensorFlow's session too: what it asserts is TensorFlow's contract.
"""

import pytest
import tensorflow as tf

tf1 = tf.compat.v1
train = tf1.train
RunOptions, RunMetadata = tf1.RunOptions, tf1.RunMetadata


class Asking(train.SessionRunHook):
    """Asks for each of `requests` in turn, and keeps the values it gets."""

    def __init__(self, *requests):
        self.requests = requests
        self.values = []

    def before_run(self, run_context):
        return self.requests[len(self.values) % len(self.requests)]

    def after_run(self, run_context, run_values):
        self.values.append(run_values)


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def feed(tensor, value):
    return train.SessionRunArgs(None, feed_dict={tensor: value})


def addends():
    a, b, c = (tf1.placeholder_with_default(0, [], name=name) for name in "abc")
    return a, b, c, a + b + c


def test_hooks_and_the_caller_may_each_feed_tensors_of_their_own(monitored):
    a, b, c, total = addends()
    feeds = {c: 20}
    with monitored(hooks=[Asking(feed(a, 5)), Asking(feed(b, 10), None)]) as session:
        found = [session.run(total, feeds), session.run(total, feeds)]
        found += [session.run(total), session.run(total)]
    assert found == [35, 25, 15, 5]
    assert feeds == {c: 20}


def test_a_fed_step_does_not_stay_fed(monitored):
    a, _, _, total = addends()
    hook = Asking(None, feed(a, 5))
    with monitored(hooks=[hook]) as session:
        assert [session.run([total, a]) for _ in range(4)] == [[0, 0], [5, 5]] * 2
        assert session.run([total, a], feed_dict={}) == [0, 0]
        assert session.run([total, a], {"b:0": 2}) == [7, 5]


def test_a_traced_step_is_traced_alone(monitored):
    trace = train.SessionRunArgs(
        None, options=RunOptions(trace_level=RunOptions.FULL_TRACE)
    )
    hook = Asking(None, trace, None)
    fetched = tf.random.uniform([], name="fetched")
    with monitored(hooks=[hook]) as session:
        for _ in range(6):
            session.run(fetched)
    plain = (RunOptions(), RunMetadata())
    assert [(v.options, v.run_metadata) == plain for v in hook.values] == [
        True,
        False,
        True,
    ] * 2
    assert ["fetched" in str(v.run_metadata) for v in hook.values] == [
        False,
        True,
        False,
    ] * 2


def test_plain_steps_get_options_and_metadata_of_their_own(monitored):
    class Marking(Asking):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, (RunOptions(), RunMetadata()))
            assert (run_values.options, run_values.run_metadata) == self.values[-1]
            run_values.options.timeout_in_ms = 1
            run_values.run_metadata.step_stats.dev_stats.add()

    hook = Marking(None)
    fetched = tf.constant(1)
    with monitored(hooks=[hook]) as session:
        assert [session.run(fetched) for _ in range(3)] == [1, 1, 1]
    assert len(hook.values) == 3


def test_a_timeout_of_a_step_ends_it(monitored):
    number = tf1.FIFOQueue(1, [tf.int32], [[]]).dequeue()
    timeout = RunOptions(timeout_in_ms=50)
    hook = Asking(train.SessionRunArgs(None, options=timeout))
    with monitored(hooks=[hook]) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(number)
