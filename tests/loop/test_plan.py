"""Two requests share a plan exactly if `Session.run` would treat them alike."""

import collections
import gc
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.plan import MAX_PLANS, CannotPlan, Plan, Planner, structure

tf1 = tf.compat.v1
Pair = collections.namedtuple("Pair", ["left", "right"])
Other = collections.namedtuple("Other", ["left", "right"])


class MyDict(dict):
    pass


class MyList(list):
    pass


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def tensors():
    return tf.constant(1, name="a"), tf.constant(2, name="b")


SAME = {
    "tensor": lambda a, b: a,
    "operation": lambda a, b: a.op,
    "name": lambda a, b: "a:0",
    "list": lambda a, b: [a, b],
    "tuple": lambda a, b: (a, b),
    "named tuple": lambda a, b: Pair(a, b),
    "dict": lambda a, b: {"x": a, "y": [b]},
    "ordered dict": lambda a, b: collections.OrderedDict(x=a, y=b),
    "empty": lambda a, b: [(), {}],
    "nested": lambda a, b: {"x": [(a, {"y": Pair(b, "a")})]},
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_containers_count_by_what_they_hold(make):
    a, b = tensors()
    first, second = make(a, b), make(a, b)
    assert structure(first) == structure(second)
    assert hash(structure(first)) == hash(structure(second))


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


def test_leaves_count_by_identity():
    a, _ = tensors()
    variable = tf1.Variable(1)
    sparse = [tf.SparseTensor([[0, 0]], [1], [1, 1]) for _ in range(2)]
    leaves = [a, a.op, variable, *sparse]
    assert [structure(leaf) for leaf in leaves] == [id(leaf) for leaf in leaves]


NO_PLAN = {
    "NoneType": lambda a: None,
    "int": lambda a: 3,
    "bytes": lambda a: b"a:0",
    "ndarray": lambda a: np.zeros(1),
    "set": lambda a: {"a:0"},
    "generator": lambda a: (x for x in [a]),
    "defaultdict": lambda a: collections.defaultdict(list, x=a),
    "MyDict": lambda a: MyDict(x=a),
    "MyList": lambda a: MyList([a]),
    "mappingproxy": lambda a: types.MappingProxyType({"x": a}),
}


@pytest.mark.parametrize("kind", NO_PLAN)
def test_what_a_plan_cannot_stand_for_is_named(kind):
    a, _ = tensors()
    fetches = NO_PLAN[kind](a)
    for nested in (fetches, [fetches], {"x": (a, fetches)}):
        with pytest.raises(CannotPlan) as caught:
            structure(nested)
        assert str(caught.value) == f"is asked for a {kind}"


def test_a_plan_gives_every_consumer_its_results():
    a, b = tensors()
    with tf1.Session() as session:
        wanted = {"x": [a, b.op], "y": {"a": a, "b": b}, "z": []}
        flush = DenormalFlush.of_this_machine()
        plan, on_caller = Plan(session, wanted, None), Plan(session, wanted, flush)
        values = plan.run()
        assert values == [1, 2]
        assert on_caller.run() == [1, 2]
        assert plan.results(values) == {
            "x": [1, None],
            "y": {"a": 1, "b": 2},
            "z": [],
        }


def test_a_plan_for_nothing_is_refused():
    tensors()
    with tf1.Session() as session, pytest.raises(CannotPlan, match="asks for nothing"):
        Plan(session, {"x": [], "y": {}}, None)


def test_a_plan_for_a_session_handle_is_refused():
    handle = tf1.get_session_handle(tensors()[0])
    with tf1.Session() as session, pytest.raises(CannotPlan, match="a session handle"):
        Plan(session, {"x": [handle]}, None)


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


def test_a_closed_session_has_no_plans():
    a, _ = tensors()
    session = tf1.Session()
    planner = Planner(session, on_pool)
    assert planner.plan({"caller": a}) is not None
    session.close()
    assert planner.plan({"caller": a}) is None
