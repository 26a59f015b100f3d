"""Hooks are called as TensorFlow's MonitoredSession calls them, and may stop it.

Every test runs on TensorFlow's session too: what it asserts is TensorFlow's contract.
"""

import itertools

import pytest
import tensorflow as tf

tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")


class Recorder(train.SessionRunHook):
    """Writes down its calls in a list that hooks may share."""

    def __init__(self, name="hook", calls=None, stop_in=None):
        self.name = name
        self.calls = [] if calls is None else calls
        self.stop_in = stop_in
        self.contexts = []

    def begin(self):
        self.calls.append((self.name, "begin"))

    def after_create_session(self, session, coord):
        self.calls.append((self.name, "after_create_session"))

    def before_run(self, run_context):
        self.calls.append((self.name, "before_run"))
        self.seen("before_run", run_context)

    def after_run(self, run_context, run_values):
        self.calls.append((self.name, "after_run", run_values.results))
        self.seen("after_run", run_context)

    def end(self, session):
        self.calls.append((self.name, "end"))

    def seen(self, method, context):
        self.contexts.append(context)
        if self.stop_in == method:
            context.request_stop()


def counter():
    return train.get_or_create_global_step().assign_add(1)


def test_hooks_of_a_step_share_a_context_with_the_callers_arguments(monitored):
    a, b = Recorder(), Recorder()
    add = counter()
    extra = tf1.placeholder_with_default(0, [])
    fetches, feed_dict = [add, extra], {extra: 3}
    with monitored(hooks=[a, b]) as session:
        session.run(fetches)
        assert session.run(fetches, feed_dict) == [2, 3]
        tf_session = session._tf_sess()
    plain, fed = a.contexts[0], a.contexts[2]
    assert [c is plain for c in a.contexts + b.contexts] == [
        True,
        True,
        False,
        False,
    ] * 2
    assert [c is fed for c in a.contexts + b.contexts] == [False, False, True, True] * 2
    assert plain.original_args == train.SessionRunArgs(fetches)
    assert fed.original_args == train.SessionRunArgs(fetches, feed_dict)
    assert fed.original_args.fetches is fetches
    assert fed.original_args.feed_dict is feed_dict
    assert type(plain.session) is tf1.Session
    assert plain.session is fed.session is tf_session


@pytest.mark.parametrize("method", ["before_run", "after_run"])
def test_a_stop_request_takes_effect_after_the_step_is_complete(monitored, method):
    calls = []
    add = counter()
    stopper, other = (
        Recorder("stopper", calls, stop_in=method),
        Recorder("other", calls),
    )
    session = monitored(hooks=[stopper, other])
    assert not session.should_stop()
    assert session.run(add) == 1
    assert calls[-2:] == [("stopper", "after_run", None), ("other", "after_run", None)]
    assert session.should_stop()
    with pytest.raises(RuntimeError) as caught:
        session.run(add)
    assert str(caught.value) == "Run called even after should_stop requested."
    assert len(calls) == 8  # no hook was asked
    session.close()
    assert calls[-2:] == [("stopper", "end"), ("other", "end")]


class Asking(train.SessionRunHook):
    """Asks for each of `requests` in turn."""

    def __init__(self, *requests):
        self._requests = itertools.cycle(requests)

    def before_run(self, run_context):
        return next(self._requests)


def test_a_timeout_of_a_step_ends_it(monitored):
    number = tf1.FIFOQueue(1, [tf.int32], [[]]).dequeue()
    timeout = tf1.RunOptions(timeout_in_ms=50)
    hook = Asking(train.SessionRunArgs(None, options=timeout))
    with monitored(hooks=[hook]) as session:
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(number)
