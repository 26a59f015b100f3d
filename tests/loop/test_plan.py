"""Two requests share a plan exactly if `Session.run` would treat them alike."""

import collections
import gc
import weakref

import pytest
import tensorflow as tf

from estimator_runtime.loop.plan import MAX_PLANS, Planner, structure

tf1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("graph")
Pair = collections.namedtuple("Pair", ["left", "right"])
Other = collections.namedtuple("Other", ["left", "right"])


def tensors():
    return tf.constant(1, name="a"), tf.constant(2, name="b")


DIFFERENT = {
    "tensors": lambda a, b: (a, b),
    "a tensor and its operation": lambda a, b: (a, a.op),
    "a tensor and its name": lambda a, b: (a, "a:0"),
    "a tensor and a list of it": lambda a, b: (a, [a]),
    "a name and a list of it": lambda a, b: ("a", ["a"]),
    "order": lambda a, b: ([a, b], [b, a]),
    "list and tuple": lambda a, b: ([a, b], (a, b)),
    "tuple and named tuple": lambda a, b: ((a, b), Pair(a, b)),
    "named tuples": lambda a, b: (Pair(a, b), Other(a, b)),
    "names in a dict": lambda a, b: ({"x": a}, {"y": a}),
    "values in a dict": lambda a, b: ({"x": a}, {"x": b}),
    "order of a dict": lambda a, b: ({"x": a, "y": b}, {"y": b, "x": a}),
    "dict and ordered dict": lambda a, b: ({"x": a}, collections.OrderedDict(x=a)),
    "dict and tuple of items": lambda a, b: ({"x": "a"}, (("x", "a"),)),
    "grouping": lambda a, b: ([[a], [b]], [[a, b], []]),
    "length": lambda a, b: ([a], [a, a]),
}


@pytest.mark.parametrize("make", DIFFERENT.values(), ids=DIFFERENT)
def test_what_gives_other_results_counts_as_different(make):
    first, second = make(*tensors())
    assert structure(first) != structure(second)


def on_pool(fetches):
    """Choose TensorFlow's threads for every request."""


def test_an_equal_request_gets_the_same_plan():
    a, b = tensors()
    hook = object()
    with tf1.Session() as session:
        planner = Planner(session, on_pool)
        plan = planner.plan({"caller": a, hook: {"b": [b]}})
        assert planner.plan({"caller": a, hook: {"b": [b]}}) is plan
        others = [
            {"caller": a},
            {"caller": a, object(): {"b": [b]}},
            {"caller": a, hook: {"b": [a]}},
            {hook: {"b": [b]}, "caller": a},
        ]
        assert all(planner.plan(other) is not plan for other in others)


def test_a_plan_keeps_what_its_key_relies_on_when_the_program_lets_go():
    tensors()
    leaf = tf.SparseTensor([[0, 0]], [1], [1, 1])
    alive = weakref.ref(leaf)
    fetches = [leaf]
    with tf1.Session() as session:
        planner = Planner(session, on_pool)
        planner.plan({"caller": fetches})
        del leaf
        fetches.clear()
        gc.collect()
        # Or else another object could get its address, and its plan.
        assert alive() is not None


def test_a_planner_makes_so_many_plans_and_no_more():
    a, _ = tensors()
    with tf1.Session() as session:
        planner = Planner(session, on_pool)
        plans = [planner.plan({"caller": [a] * i}) for i in range(1, MAX_PLANS + 3)]
        assert [plan is None for plan in plans] == [False] * MAX_PLANS + [True] * 2
        assert planner.plan({"caller": [a]}) is plans[0]
