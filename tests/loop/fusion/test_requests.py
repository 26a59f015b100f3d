"""What hooks ask for is compiled once, and let go when much else has been asked for."""

import collections
import gc
import weakref

import pytest
import tensorflow as tf
from tensorflow.python.client import session as session_lib
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options
from estimator_runtime.loop.plan import MAX_PLANS

tf1 = tf.compat.v1
train = tf1.train
NUMBERS = range(8)


class MyList(list):
    pass


class Asks(train.SessionRunHook):
    """Asks at each call for what a function gives, of its tensors and the call's number.

    It need not see more than every fourth step.
    """

    def __init__(self, request, run_options=None):
        self.fused_fetches = [tf.constant(n, name=f"asked{n}") for n in NUMBERS]
        self.results = []
        self._request = request
        self._options = run_options
        self._calls = 0

    def steps_until_due(self, global_step):
        return 4 - global_step % 4

    def before_run(self, run_context):
        request = self._request(self.fused_fetches, self._calls)
        self._calls += 1
        return train.SessionRunArgs(request, options=self._options)

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)


class Compiled:
    """The callables that sessions have made for what the hook asks for.

    Attributes:
        times: What they fetch to how often it was compiled.
        alive: How many TensorFlow has not been told to forget.
    """

    def __init__(self, monkeypatch):
        self.times = collections.Counter()
        self._alive = weakref.WeakSet()
        make = session_lib.BaseSession._make_callable_from_options

        def make_and_note(session, options):
            made = make(session, options)
            if any(name.startswith("asked") for name in options.fetch):
                self._alive.add(made)
                self.times[tuple(options.fetch)] += 1
            return made

        monkeypatch.setattr(
            session_lib.BaseSession, "_make_callable_from_options", make_and_note
        )

    @property
    def alive(self):
        return len(self._alive)


@pytest.fixture
def compiled(monkeypatch):
    return Compiled(monkeypatch)


def train_with(request, runs, run_options=None, make=er.MonitoredTrainingSession):
    """Train runs of up to 4 steps; give what the hook got, and the last step."""
    with (
        tf.Graph().as_default(),
        options.use(options.TrainingOptions(steps_per_run=4)),
    ):
        train_op = train.get_or_create_global_step().assign_add(1)
        hook = Asks(request, run_options)
        with make(hooks=[hook], log_step_count_steps=None) as session:
            for _ in range(runs):
                step = session.run(train_op)
    return hook.results, step


def subset(tensors, number):
    """Return those of the tensors whose bits are in a number, which tells subsets apart."""
    return [t for i, t in enumerate(tensors) if number >> i & 1]


def test_requests_of_the_past_are_let_go_with_all_that_was_compiled_for_them(compiled):
    runs = 2 * MAX_PLANS + 10
    seen = []

    def request(tensors, call):
        seen.append(compiled.alive)
        return subset(tensors, call)

    gc.collect()
    gc.disable()
    try:
        results, step = train_with(request, runs)
    finally:
        gc.enable()
    assert results == [subset(NUMBERS, call) for call in range(runs)]
    assert step > 3 * runs
    assert len(compiled.times) == runs - 1  # the first one asks for nothing
    assert max(seen) == MAX_PLANS


def test_a_request_that_comes_back_in_time_is_not_compiled_anew(compiled):
    runs = 4 * MAX_PLANS

    def number_at(call):
        """Every other request is a new one; one of three, in turn, is between them."""
        return 3 + call // 2 if call % 2 else call // 2 % 3

    results, _ = train_with(lambda t, call: subset(t, number_at(call)), runs)
    assert results == [subset(NUMBERS, number_at(call)) for call in range(runs)]
    assert set(compiled.times.values()) == {1}


def test_a_request_that_comes_back_late_is_compiled_anew(compiled):
    runs = 2 * (MAX_PLANS + 2)
    results, _ = train_with(lambda t, call: subset(t, call % (runs // 2)), runs)
    assert results == [subset(NUMBERS, call) for call in range(runs // 2)] * 2
    assert compiled.times.total() == runs - 2  # two ask for nothing
    assert len(compiled.times) == runs // 2 - 1


NO_KEY = {
    "default dict": lambda t, call: collections.defaultdict(list, x=t[1], y=[t[2]]),
    "kind of list": lambda t, call: MyList([t[1], (t[2],)]),
    "inside": lambda t, call: {"x": [collections.defaultdict(list, x=t[1])]},
}


@pytest.mark.parametrize("kind", NO_KEY)
def test_a_request_that_no_key_finds_again_gets_what_it_asks_for(kind):
    runs = 20
    results, step = train_with(NO_KEY[kind], runs)
    stock = monitored_session.MonitoredTrainingSession
    expected, _ = train_with(NO_KEY[kind], 1, make=stock)
    assert step > 3 * runs
    assert [repr(each) for each in results] == [repr(expected[0])] * runs


def test_the_steps_before_one_with_run_options_are_compiled_once(compiled):
    run_options = tf1.RunOptions(trace_level=tf1.RunOptions.SOFTWARE_TRACE)
    results, step = train_with(lambda t, call: t[5], 20, run_options)
    assert results == [5] * 20
    assert step > 60
    assert set(compiled.times.values()) == {1}
