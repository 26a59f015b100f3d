"""What single ops do: where their state is, and which may be copied into a loop."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import data_flow_ops

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.session import LoopSession

tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")


def python(x):
    return tf1.py_func(lambda x: x, [x], tf.float32)


@pytest.mark.parametrize("make_session", [train.MonitoredSession, LoopSession])
def test_python_code_finds_no_graph_of_the_program_around_it(make_session):
    def double(x):
        return (2 * tf.constant(x)).numpy() if tf.executing_eagerly() else -1

    x = tf1.py_func(double, [tf.constant(3.0)], tf.float32)
    with make_session() as session:
        assert session.run(x) == 6.0


@pytest.mark.timeout(60)
def test_kernels_of_one_step_may_wait_for_each_other():
    area = data_flow_ops.StagingArea([tf.float32], capacity=1)
    put = area.put([tf.constant(1.0)])
    slow = tf.random.uniform([200, 200])
    for _ in range(10):
        slow = tf.matmul(slow, slow) * 1e-3
    with tf.control_dependencies([slow]):
        get = area.get()  # makes room for what `put` puts
    with LoopSession() as session:
        session.run(put)
        for _ in range(50):
            session.run([put, get])


def seeded():
    return tf.random.uniform([], seed=3)


def not_inlined(x):
    @function.Defun(tf.float32, noinline=True)
    def random(x):
        return x + seeded()

    return random(x)


def not_inlined_in_a_loop(x):
    def body(i, x):
        return i + 1, tf.ensure_shape(not_inlined(x), [])

    return tf.while_loop(lambda i, x: i < 3, body, [0, x])[1]


def branch_that_is_not_lowered(x):
    def function_of(branch):
        made = tf.function(branch).get_concrete_function()
        made.add_to_graph(tf1.get_default_graph())
        return made

    drawn = tf.raw_ops.If(
        cond=x > -1,
        input=[],
        Tout=[tf.float32],
        then_branch=function_of(seeded),
        else_branch=function_of(lambda: tf.constant(0.0)),
    )
    return x + drawn[0]


def inlined(x):
    return tf.function(lambda x: x + seeded())(x)


def branch_of_tensorflow(x):
    return tf.cond(x > -1, lambda: x + seeded(), lambda: x)


def branch_in_a_loop(x):
    return tf.while_loop(lambda x: x < 3, lambda x: [branch_of_tensorflow(x) + 1], [x])[
        0
    ]


def branch_in_a_function(x):
    return tf.function(branch_of_tensorflow)(x)


def function_in_a_branch(x):
    return tf.cond(x > -1, lambda: inlined(x), lambda: x)


@pytest.mark.parametrize(
    ("build", "own"),
    [
        (not_inlined, True),
        (not_inlined_in_a_loop, True),
        (branch_that_is_not_lowered, True),
        (inlined, True),
        (branch_of_tensorflow, False),
        (branch_in_a_loop, False),
        (branch_in_a_function, True),
        (function_in_a_branch, True),
    ],
)
def test_random_numbers_are_stocks_wherever_their_state_is(build, own):
    graph = tf1.get_default_graph()
    x = build(tf.constant(0.0))
    feed = tf1.placeholder_with_default(0.0, [])

    def numbers(session):
        plain = [session.run(x) for _ in range(50)]
        fed = [session.run([x, feed], {feed: 1.0})[0] for _ in range(3)]
        return plain + fed + [session.run(x) for _ in range(3)]

    with train.MonitoredSession() as session:
        stock = numbers(session)
    with LoopSession() as session:
        assert numbers(session) == stock
    assert ops.have_own_state(graph) is own
    assert len(set(stock)) > 40  # else it would say nothing about random numbers
