"""What single ops do: where their state is, and which may be copied into a loop."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import data_flow_ops

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph
from estimator_runtime.loop.session import LoopSession

tf1 = tf.compat.v1
train = tf1.train


@pytest.fixture(autouse=True)
def _graph():
    with tf.Graph().as_default():
        yield


def python(x):
    return tf1.py_func(lambda x: x, [x], tf.float32)


def eager(x):
    return tf.py_function(lambda x: x, [x], tf.float32)


def only_in_a_dataset(x):
    data = tf.data.Dataset.from_tensors(x).map(python).map(tf.function(eager))
    return tf1.data.make_one_shot_iterator(data).get_next()


def shuffled_dataset(x):
    data = tf.data.Dataset.from_tensors(x).map(lambda x: x + seeded()).shuffle(3, 1)
    return tf1.data.make_one_shot_iterator(data).get_next()


def functions_of_tensorflow(x):
    return tf.cond(tf.function(lambda x: x + 1)(x) > 0, lambda: x, lambda: -x)


def without_a_seed(x):
    return tf.function(lambda x: x + tf.random.uniform([]))(x)


@pytest.mark.parametrize(
    "build",
    [only_in_a_dataset, shuffled_dataset, functions_of_tensorflow, without_a_seed],
)
def test_functions_that_keep_no_state_have_none_of_their_own(build):
    build(tf.constant(1.0))
    assert not ops.have_own_state(tf1.get_default_graph())


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


def test_who_takes_a_handle_inside_control_flow_of_tensorflow_1_is_found(
    old_control_flow,
):
    weight = tf1.get_variable("weight", [], initializer=tf1.zeros_initializer())
    is_first = tf1.placeholder(tf.bool, [])
    read = tf.cond(is_first, lambda: weight + 1.0, lambda: 0.0)
    added = tf.cond(is_first, lambda: weight.assign_add(1.0), lambda: weight.value())
    taken = tf.while_loop(
        lambda i: i < 3.0, lambda i: i + 1.0 + weight.assign_sub(i), [0.0]
    )
    graph = tf1.get_default_graph()
    users = ops.users(weight.handle)
    assert {op.type for op in users if ops.may_write(op)} == {
        "AssignAddVariableOp",
        "AssignSubVariableOp",
        "AssignVariableOp",  # its initializer
    }
    trains = [
        ops.any_trains(graph, Subgraph(graph, [tensor.op]).ops.values())
        for tensor in (read, added, taken[0])
    ]
    assert trains == [False, True, True]
    with pytest.raises(CannotFuse, match=r"^leaves out '.*', which trains as well$"):
        Subgraph(graph, [read.op]).check_alone()


def generator(x):
    state = tf.Variable([0, 1, 2], dtype=tf.int64)
    return x + tf.random.Generator.from_state(state, "philox").normal([])


def random_in_a_loop(x):
    return tf.while_loop(lambda x: x < 3, lambda x: [x + tf.random.uniform([])], [x])


def sample_candidates(x):
    labels = tf.constant([[1]], tf.int64)
    return tf.random.uniform_candidate_sampler(labels, 1, 1, True, 9)[2]


@pytest.mark.parametrize(
    ("build", "types"),
    [
        (lambda x: x * 2, []),
        (lambda x: tf.nn.dropout(x, 0.5), ["RandomUniform"]),
        (lambda x: tf.random.normal([]) + x, ["RandomStandardNormal"]),
        (lambda x: tf.random.truncated_normal([]) + x, ["TruncatedNormal"]),
        (lambda x: tf.random.shuffle([x, 2 * x]), ["RandomShuffle"]),
        (lambda x: tf.random.categorical([[x]], 1), ["Multinomial"]),
        (sample_candidates, ["UniformCandidateSampler"]),
        (inlined, ["StatefulPartitionedCall"]),
        (random_in_a_loop, ["While"]),
        (lambda x: tf.random.stateless_uniform([], [1, 2]) + x, []),
        (generator, []),
    ],
)
def test_ops_that_draw_from_a_generator_of_their_own_are_found(build, types):
    graph = tf1.get_default_graph()
    build(tf.constant(0.0))
    found = ops.with_own_randomness(graph, graph.get_operations())
    assert [graph.get_operation_by_name(name).type for name in found] == types


def sparse_map(x):
    """Keep a sparse tensor in a map that bears the name of its op."""
    many = tf.raw_ops.AddManySparseToTensorsMap(
        sparse_indices=np.zeros([1, 2], np.int64),
        sparse_values=x[None],
        sparse_shape=np.ones([2], np.int64),
        name="kept",
    )
    return tf.cast(many, tf.float32)


def sparse_map_in_a_function(x):
    return tf.function(lambda x: tf.function(sparse_map)(x) + 1)(x)


def sparse_map_in_a_branch(x):
    return tf.cond(x > 0, lambda: sparse_map(x), lambda: x[None])


@pytest.mark.parametrize(
    "build", [sparse_map, sparse_map_in_a_function, sparse_map_in_a_branch]
)
def test_an_op_that_keeps_state_is_named_wherever_it_is(build):
    step = Subgraph(tf1.get_default_graph(), [build(tf.constant(1.0)).op])
    with pytest.raises(CannotFuse) as raised:
        step.check_fusable()
    reason = str(raised.value)
    assert reason.startswith("has an op that may keep state of its own, 'kept' ")
    assert "(AddManySparseToTensorsMap)" in reason
    assert ("in the function" in reason) is (build is not sparse_map)
