"""Step functions, threads of queues, sessions of the program's own making, closing.

Every test runs on TensorFlow's session too: what it asserts is TensorFlow's contract.
"""

import gc
import weakref

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")


class Counting(train.SessionRunHook):
    """Counts its calls, and asks for `request`."""

    def __init__(self, request=None):
        self.request = request
        self.calls = 0
        self.results = []
        self.ended = 0

    def before_run(self, run_context):
        self.calls += 1
        return self.request

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)

    def end(self, session):
        self.ended += 1


def counter():
    return train.get_or_create_global_step().assign_add(1)


def test_a_session_is_closed_once_and_runs_no_more(monitored):
    add = counter()
    hook = Counting()
    session = monitored(hooks=[hook])
    session.run(add)
    tf_session = session._tf_sess()
    session.close()
    assert (session.should_stop(), session.graph, hook.ended) == (True, None, 1)
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        tf_session.run(add)
    with pytest.raises(AttributeError):
        session.run(add)
    with pytest.raises(RuntimeError, match="Session is already closed"):
        session.close()


def test_a_closed_session_is_freed_without_the_garbage_collector(monitored):
    add = counter()
    gc.collect()
    gc.disable()
    try:
        with monitored(hooks=[Counting()]) as session:
            session.run(add)
            session.run([add])
            alive = weakref.ref(session._tf_sess())
        assert alive() is None
    finally:
        gc.enable()


class Wrapper(monitored_session._WrappedSession):
    """A session of the program's own, that writes down what it is to run."""

    def __init__(self, session):
        super().__init__(session)
        self.runs = []

    def run(self, **arguments):
        self.runs.append(arguments)
        return super().run(**arguments)


class WrappingCreator(train.ChiefSessionCreator):
    """Makes sessions that `wrap` wraps."""

    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def create_session(self):
        return self.wrap(super().create_session())


def test_a_wrapped_session_sees_every_run_with_all_its_arguments(monitored):
    a, b = tf.constant(1), tf.constant(2)
    c = tf1.placeholder_with_default(3, [])
    hook = Counting(train.SessionRunArgs([b], feed_dict={c: 4}))
    with monitored(WrappingCreator(Wrapper), [hook]) as session:
        found = [session.run(a) for _ in range(3)]
        runs = session._tf_sess().runs
    assert (found, hook.results) == ([1] * 3, [[2]] * 3)
    expected = {
        "fetches": {"caller": a, hook: [b]},
        "feed_dict": {c: 4},
        "options": tf1.RunOptions(),
        "run_metadata": tf1.RunMetadata(),
    }
    assert runs == [expected] * 3


@pytest.mark.parametrize(
    "owner",
    [None, tf1.Session, tf1.Session.__mro__[1]],
    ids=["of a session", "of its class", "of its base class"],
)
def test_a_run_that_the_program_replaced_sees_every_run(monitored, owner, monkeypatch):
    def counting(run):
        def counted(*args, **kwargs):
            runs.append(run)
            return run(*args, **kwargs)

        return counted

    def replaced(session):
        if owner is None:
            session.run = counting(session.run)
        return session

    runs = []
    if owner is not None:
        monkeypatch.setattr(owner, "run", counting(owner.run))
    add = counter()
    with monitored(WrappingCreator(replaced)) as session:
        runs.clear()
        assert [session.run(add) for _ in range(3)] == [1, 2, 3]
        assert len(runs) == 3
