"""Whatever `Session.run` can fetch comes back in the same structure, type and value.

Every test runs on TensorFlow's session too: what it asserts is TensorFlow's contract.
"""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.client import session as session_lib

from estimator_runtime.loop import plan

tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")


class Checked(collections.namedtuple("Checked", ["number"])):
    """A named tuple that takes numbers only."""

    def __new__(cls, number):
        return super().__new__(
            cls, number if isinstance(number, tf.Tensor) else +number
        )


class Asking(train.SessionRunHook):
    """Asks for `fetches` and keeps what it gets."""

    def __init__(self, fetches):
        self.fetches = fetches
        self.results = []

    def before_run(self, run_context):
        return train.SessionRunArgs(self.fetches)

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)


def described(value):
    """Return a value and its types, arrays as lists, so that == means the same."""
    kind = type(value).__name__
    if isinstance(value, dict):
        names = getattr(value, "default_factory", None), list(value)
        return kind, names, [described(each) for each in value.values()]
    if isinstance(value, (list, tuple)):
        return kind, [described(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return kind, str(value.dtype), value.shape, value.tolist()
    return kind, value


ONE = np.int32(1)
TWO = np.array([2, 2], np.int32)


def one():
    return tf.constant(1, name="one")


def two():
    return tf.constant([2, 2], name="two")


# The structures of test_planned_against_stock.py are not among them.
CASES = {
    "tensor": (one, ONE),
    "named tuple with a constructor": (lambda: Checked(one()), Checked(ONE)),
    "dict": (lambda: {"x": one(), 3: two()}, {"x": ONE, 3: TWO}),
    "default dict": (
        lambda: collections.defaultdict(list, {"x": one()}),
        collections.defaultdict(list, {"x": ONE}),
    ),
    "empty list": (lambda: [], []),
    "empty dict": (dict, {}),
    "names": (lambda: [one().name, two().op.name], [ONE, None]),
    "reference variable": (lambda: tf1.Variable(1, use_resource=False), ONE),
    "the same twice": (
        lambda: [x := two(), x, {"x": x}, x.name],
        [TWO, TWO, {"x": TWO}, TWO],
    ),
    "no elements": (lambda: tf.zeros([0, 3]), np.zeros([0, 3], np.float32)),
}


@pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES)
def test_what_is_fetched_has_the_structure_of_the_request(monitored, make, expected):
    fetches = make()
    hook = Asking(fetches)
    with monitored(hooks=[hook]) as session:
        results = [session.run(fetches) for _ in range(3)]
    assert [described(each) for each in results] == [described(expected)] * 3
    assert [described(each) for each in hook.results] == [described(expected)] * 3


def test_a_ragged_tensor_comes_back_as_its_value(monitored):
    ragged = tf.RaggedTensor.from_row_lengths([1, 2, 3], [2, 1])
    with monitored() as session:
        results = [session.run(ragged).to_list() for _ in range(2)]
    assert results == [[[1, 2], [3]]] * 2


def test_a_type_that_the_program_registered_is_fetched_its_way(monitored):
    @dataclasses.dataclass
    class Squared:
        tensor: tf.Tensor

    session_lib.register_session_run_conversion_functions(
        Squared, lambda s: ([s.tensor], lambda values: ("squared", values[0] ** 2))
    )
    fetches = Squared(tf.constant(3))
    with monitored() as session:
        assert [session.run([fetches]) for _ in range(2)] == [[("squared", 9)]] * 2


def test_a_session_handle_can_be_used(monitored):
    handle = tf1.get_session_handle(tf.constant(5))
    with monitored() as session:
        kept = [session.run(handle) for _ in range(2)]
        tf1.get_default_graph()._unsafe_unfinalize()  # using one adds ops
        assert [each.eval() for each in kept] == [5, 5]


def of_another_graph():
    with tf.Graph().as_default():
        return tf.constant(1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: [tf.constant(1), None], TypeError, "Cannot be None"),
        (lambda: 3, TypeError, "must be a string or Tensor"),
        (lambda: "nothing:0", ValueError, "cannot be interpreted as a Tensor"),
        (of_another_graph, ValueError, "is not an element of this graph"),
    ],
    ids=["None in a list", "int", "unknown name", "other graph"],
)
def test_what_cannot_be_fetched_is_refused(monitored, make, error, message):
    one()
    fetches = make()
    with monitored() as session:
        for _ in range(2):
            with pytest.raises(error, match=message):
                session.run(fetches)
        assert session.run("one:0") == 1


def test_fetches_that_differ_at_every_step_give_their_own_values(monitored):
    numbers = [tf.constant(i) for i in range(plan.MAX_PLANS + 10)]
    hook = Asking(numbers[0])
    with monitored(hooks=[hook]) as session:
        found = [session.run(numbers[i:][:2]) for i in range(len(numbers))]
        again = [session.run(numbers[i:][:2]) for i in range(len(numbers))]
    assert (
        found
        == again
        == [list(range(len(numbers)))[i:][:2] for i in range(len(numbers))]
    )
    assert hook.results == [0] * 2 * len(numbers)


@pytest.mark.parametrize("use_resource", [True, False])
def test_results_that_a_hook_keeps_are_not_changed_by_later_steps(
    monitored, use_resource
):
    variable = tf1.get_variable("v", initializer=[0, 0, 0], use_resource=use_resource)
    add = tf1.assign_add(variable, [1, 1, 1]).op
    found = []
    with monitored() as session:
        for _ in range(4):
            found.append(session.run(variable))
            session.run(add)
    assert [each.tolist() for each in found] == [[i] * 3 for i in range(4)]


def test_results_that_a_hook_changes_change_nothing_in_the_model(monitored):
    class Scaling(Asking):
        def after_run(self, run_context, run_values):
            for array in run_values.results:
                array *= 100

    constant = tf.constant([1, 2])
    resource = tf1.get_variable("resource", initializer=[3, 4], use_resource=True)
    reference = tf1.get_variable("reference", initializer=[5, 6], use_resource=False)
    default = tf1.placeholder_with_default([7, 8], [2])
    tensors = [constant, tf.identity(resource), tf.identity(reference), default]
    with monitored(hooks=[Scaling(tensors)]) as session:
        session.run(constant.op)
        session.run(constant.op)
        found = session._tf_sess().run(tensors)
    assert [each.tolist() for each in found] == [[1, 2], [3, 4], [5, 6], [7, 8]]
