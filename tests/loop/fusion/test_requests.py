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
        self.fused_fetches = [tf.constant(number) for number in NUMBERS]
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
    """The callables that sessions have made to run several steps.

    Attributes:
        times: What they run to how often it was compiled for each kind of thread.
        alive: How many TensorFlow has not been told to forget.
        most_times: The most that anything was compiled for one kind of thread.
    """

    def __init__(self, monkeypatch):
        self.times = collections.defaultdict(collections.Counter)
        self._alive = weakref.WeakSet()
        make = session_lib.BaseSession._make_callable_from_options

        def make_and_note(session, asked):
            made = make(session, asked)
            if asked.feed:  # the number of steps
                self._alive.add(made)
                thread = asked.run_options.inter_op_thread_pool
                self.times[(*asked.fetch, *asked.feed)][thread] += 1
            return made

        monkeypatch.setattr(
            session_lib.BaseSession, "_make_callable_from_options", make_and_note
        )

    @property
    def alive(self):
        return len(self._alive)

    @property
    def most_times(self):
        return max(max(times.values()) for times in self.times.values())


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
    assert len(compiled.times) == runs
    assert max(seen) == MAX_PLANS


def test_a_request_that_comes_back_in_time_is_not_compiled_anew(compiled):
    runs = 4 * MAX_PLANS

    def number_at(call):
        """Every other request is a new one; one of three, in turn, is between them."""
        return 3 + call // 2 if call % 2 else call // 2 % 3

    results, _ = train_with(lambda t, call: subset(t, number_at(call)), runs)
    assert results == [subset(NUMBERS, number_at(call)) for call in range(runs)]
    assert compiled.most_times == 1


def test_a_request_that_comes_back_late_is_compiled_anew(compiled):
    runs = 2 * (MAX_PLANS + 2)
    results, _ = train_with(lambda t, call: subset(t, call % (runs // 2)), runs)
    assert results == [subset(NUMBERS, call) for call in range(runs // 2)] * 2
    assert sum(t.total() for t in compiled.times.values()) == runs
    assert len(compiled.times) == runs // 2


NO_KEY = {
    "default dict": lambda t, call: collections.defaultdict(list, x=t[1], y=[t[2]]),
    "kind of list": lambda t, call: MyList([t[1], (t[2],)]),
    "inside": lambda t, call: {"x": [collections.defaultdict(list, x=t[1])]},
}


@pytest.mark.parametrize("kind", NO_KEY)
def test_what_no_key_finds_again_is_not_compiled(kind, compiled):
    runs = 20
    results, step = train_with(NO_KEY[kind], runs)
    stock = monitored_session.MonitoredTrainingSession
    expected, _ = train_with(NO_KEY[kind], 1, make=stock)
    assert step > 3 * runs
    assert [repr(each) for each in results] == [repr(expected[0])] * runs
    assert len(compiled.times) == 1  # the steps before the last one of each run
    assert compiled.most_times == 1


def test_the_steps_before_one_with_run_options_are_compiled_once(compiled):
    run_options = tf1.RunOptions(trace_level=tf1.RunOptions.SOFTWARE_TRACE)
    results, step = train_with(lambda t, call: t[5], 20, run_options)
    assert results == [5] * 20
    assert step > 60
    assert compiled.most_times == 1
