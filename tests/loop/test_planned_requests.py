"""Feeds, run options and run metadata of the caller and of hooks reach the step.

Every test runs on TensorFlow's session too: what it asserts is TensorFlow's contract.
"""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import debug_pb2

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


def test_two_hooks_that_feed_one_tensor_are_refused(monitored):
    a, _, _, total = addends()
    hooks = [Asking(feed(a, 5)), Asking(feed(a, 10))]
    with monitored(hooks=hooks) as session, pytest.raises(RuntimeError) as caught:
        session.run(total)
    assert str(caught.value) == (f"Same tensor is fed by two hooks. Conflict(s): {[a]}")
    assert [hook.values for hook in hooks] == [[], []]


def test_a_feed_of_the_wrong_shape_is_refused_and_the_next_step_runs(monitored):
    a, _, _, total = addends()
    with monitored() as session:
        with pytest.raises(ValueError, match=r"Cannot feed value of shape \(2,\)"):
            session.run(total, {a: [1, 2]})
        assert session.run(total, {a: 1}) == 1
        assert session.run(total) == 0


def watch(node):
    return debug_pb2.DebugTensorWatch(
        node_name=node, output_slot=0, debug_ops=["DebugIdentity"]
    )


def asking_for(**options):
    watched = options.pop("watched", [])
    options = RunOptions(**options)
    options.debug_options.debug_tensor_watch_opts.extend(map(watch, watched))
    return options


def test_run_options_of_hooks_are_merged(monitored):
    tf.constant(24, name="other")
    fetched = tf.constant(42, name="fetched")
    first, second = (
        Asking(train.SessionRunArgs(None, options=options))
        for options in (
            asking_for(trace_level=2, timeout_in_ms=30000, watched=["fetched"]),
            asking_for(
                trace_level=3,
                timeout_in_ms=20000,
                output_partition_graphs=True,
                watched=["other"],
            ),
        )
    )
    with monitored(hooks=[first, second]) as session:
        assert session.run(fetched) == 42
    merged = asking_for(
        trace_level=3,
        timeout_in_ms=30000,
        output_partition_graphs=True,
        watched=["fetched", "other"],
    )
    (seen,), (also_seen,) = first.values, second.values
    assert seen.options == also_seen.options == merged
    assert len(seen.run_metadata.partition_graphs) == 1
    assert seen.run_metadata is also_seen.run_metadata


def test_run_options_of_the_caller_are_merged_with_those_of_hooks(monitored):
    tf.constant(24, name="other")
    fetched = tf.constant(42, name="fetched")
    hook = Asking(
        train.SessionRunArgs(
            None, options=asking_for(timeout_in_ms=60000, watched=["other"])
        )
    )
    options = asking_for(trace_level=3, timeout_in_ms=30000, watched=["fetched"])
    metadata = RunMetadata()
    with monitored(hooks=[hook]) as session:
        assert session.run(fetched, options=options, run_metadata=metadata) == 42
    (values,) = hook.values
    assert values.options is options
    assert values.run_metadata is metadata
    assert options == asking_for(
        trace_level=3, timeout_in_ms=60000, watched=["fetched", "other"]
    )
    assert "fetched" in str(metadata.step_stats)


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
