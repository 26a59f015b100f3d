"""What hooks ask for is compiled, and let go when much else has been asked for."""

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


class Asks(train.SessionRunHook):
    """Asks at each call for what a function gives, of its tensors and the call's number.

    It need not see more than every fourth step.
    """

    def __init__(self, request):
        self.fused_fetches = [tf.constant(n, name=f"asked{n}") for n in NUMBERS]
        self.results = []
        self._request = request

    def steps_until_due(self, global_step):
        return 4 - global_step % 4

    def before_run(self, run_context):
        request = self._request(self.fused_fetches, len(self.results))
        return train.SessionRunArgs(request)

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)


@pytest.fixture
def compiled(monkeypatch):
    """Return what sessions have compiled for the hook, until TensorFlow forgets it."""
    alive = weakref.WeakSet()
    make = session_lib.BaseSession._make_callable_from_options

    def make_and_note(session, options):
        made = make(session, options)
        if any(name.startswith("asked") for name in options.fetch):
            alive.add(made)
        return made

    monkeypatch.setattr(
        session_lib.BaseSession, "_make_callable_from_options", make_and_note
    )
    return alive


def train_with(request, runs, make=er.MonitoredTrainingSession):
    """Train runs of up to 4 steps; return what the hook got, and the last step."""
    chosen = options.TrainingOptions(steps_per_run=4)
    with tf.Graph().as_default(), options.use(chosen):
        train_op = train.get_or_create_global_step().assign_add(1)
        hook = Asks(request)
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
        seen.append(len(compiled))
        return subset(tensors, call)

    gc.collect()
    gc.disable()
    try:
        results, step = train_with(request, runs)
    finally:
        gc.enable()
    assert results == [subset(NUMBERS, call) for call in range(runs)]
    assert step > 3 * runs
    assert max(seen) == MAX_PLANS


def test_a_request_that_no_key_finds_again_gets_what_it_asks_for():
    def request(tensors, call):
        return {"x": [collections.defaultdict(list, x=tensors[1])]}

    runs = 20
    results, step = train_with(request, runs)
    stock = monitored_session.MonitoredTrainingSession
    expected, _ = train_with(request, 1, make=stock)
    assert step > 3 * runs
    assert [repr(each) for each in results] == [repr(expected[0])] * runs
