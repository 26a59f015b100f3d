"""The calling thread runs a step if nothing in its graph could tell the difference."""

import threading

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import function
from tensorflow.python.ops import data_flow_ops
from tensorflow.python.training import training_util

from estimator_runtime.loop import caller_thread
from estimator_runtime.loop.caller_thread import CallingThread
from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.session import LoopSession

tf1 = tf.compat.v1
train = tf1.train


@pytest.fixture(autouse=True)
def _graph():
    if DenormalFlush.of_this_machine() is None:
        pytest.skip("steps always run on TensorFlow's threads on this machine")
    with tf.Graph().as_default():
        yield


def is_on_caller(fetches, config=None):
    """Return whether a request for `fetches` runs on the calling thread."""
    with tf1.Session(config=config) as session:
        return CallingThread(session).flush_for(fetches) is not None


def iterator():
    return tf1.data.make_initializable_iterator(tf.data.Dataset.from_tensors(1.0))


def variable(**arguments):
    return tf1.get_variable("weights", [8], **arguments)


def minimized(loss, optimizer=None):
    step = train.get_or_create_global_step()
    return (optimizer or train.AdamOptimizer()).minimize(loss, step)


def training_step():
    weights = variable()
    drawn = tf.nn.dropout(weights * iterator().get_next(), 0.5, seed=1)
    loss = tf.reduce_sum(tf.square(drawn)) + tf.nn.l2_loss(weights)
    return [minimized(loss), loss]


def step_that_asserts():
    weights = variable()
    with tf.control_dependencies([tf1.assert_positive(iterator().get_next())]):
        return minimized(tf.reduce_sum(weights * weights))


def embedding():
    table = tf1.get_variable("table", [1000, 4])
    names = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64)), 0
    )
    found = [names.lookup(tf.constant([each])) for each in ("a", "b")]
    return minimized(tf.reduce_sum(tf.nn.embedding_lookup(table, found) ** 2))


def decaying_rate():
    step = train.get_or_create_global_step()
    rate = train.exponential_decay(0.1, step, 10, 0.5)
    return minimized(
        tf.reduce_sum(variable() ** 2), train.GradientDescentOptimizer(rate)
    )


def what_hooks_fetch():
    step = train.get_or_create_global_step()
    read = training_util._get_or_create_global_step_read()
    return [minimized(tf.reduce_sum(variable() ** 2)), step, read]


def function_of_numbers():
    x = tf.function(lambda x: tf.function(tf.tanh)(x) + 1)(iterator().get_next())
    return tf.cond(x > 0, lambda: x, lambda: -x)


def long_chain():
    x = iterator().get_next()
    for _ in range(700):
        x = tf.tanh(x)
    return x


@pytest.mark.parametrize(
    "build",
    [
        training_step,
        long_chain,
        step_that_asserts,
        embedding,
        decaying_rate,
        what_hooks_fetch,
        function_of_numbers,
    ],
)
def test_the_calling_thread_runs_a_small_step_of_ordered_ops(build):
    assert is_on_caller(build())


def test_equal_requests_are_looked_at_once(monkeypatch):
    looked = []
    monkeypatch.setattr(caller_thread, "fits", lambda step: looked.append(step) or True)
    step, other = train.get_or_create_global_step(), tf.constant(1)
    with tf1.Session() as session:
        thread = CallingThread(session)
        found = [thread.flush_for({"a": {"b": other, "c": step}}) for _ in range(3)]
        found.append(thread.flush_for([other + 1]))
    assert None not in found
    assert [set(each.ops) for each in looked] == [{"Const"}, {"add", "Const", "add/y"}]


def test_hooks_that_read_the_global_step_in_a_branch_do_not_change_the_thread(
    old_control_flow,
):
    assert is_on_caller(what_hooks_fetch())


def python():
    return tf1.py_func(lambda: 1.0, [], tf.float32)


def stateless_python():
    return tf1.py_func(lambda: 1.0, [], tf.float32, stateful=False)


def python_in_a_function():
    return tf.function(lambda: tf.function(python)() + 1)()


def python_in_a_branch():
    return tf.cond(
        iterator().get_next() > 0, lambda: tf.ensure_shape(python(), []), lambda: 1.0
    )


def python_in_an_old_function():
    return function.Defun()(python)()


def staged():
    area = data_flow_ops.StagingArea([tf.float32])
    with tf.control_dependencies([area.put([tf.constant(1.0)])]):
        return area.get()


def queue():
    return tf1.FIFOQueue(3, [tf.float32]).dequeue()


def loop():
    return tf.while_loop(lambda x: x < 3, lambda x: [x + 1], [tf.constant(0)])


def loop_in_a_function():
    return tf.function(loop)()


def convolution():
    return tf.nn.conv2d(tf.zeros([1, 4, 4, 1]), tf.zeros([2, 2, 1, 1]), 1, "VALID")


def large_weights():
    weights = tf1.get_variable("large", [300, 300])
    return minimized(tf.reduce_sum(weights**2))


def many_columns_of_batches_of_unknown_size():
    batch = tf1.placeholder_with_default(iterator().get_next(), None)
    return tf.add_n([tf.tanh(batch) for _ in range(700)])


def reference_variable():
    return minimized(tf.reduce_sum(variable(use_resource=False) ** 2))


def function_of_a_variable():
    weights = variable()
    return tf.function(lambda: weights + 1)()


def loss_that_the_gradient_does_not_need():
    loss = tf.reduce_sum(variable())
    return [minimized(loss), loss]


def two_batches():
    batches = iterator()
    return [batches.get_next(), batches.get_next()]


def read_of_the_global_step():
    return [what_hooks_fetch(), train.get_global_step() % 5]


def two_handles_of_a_variable():
    weights = variable()
    again = tf.raw_ops.VarHandleOp(
        dtype=tf.float32, shape=[8], shared_name=weights.op.name
    )
    read = tf.raw_ops.ReadVariableOp(resource=again, dtype=tf.float32)
    return [weights.assign_add(tf.ones([8])), read]


@pytest.mark.parametrize(
    "build",
    [
        python,
        stateless_python,
        python_in_a_function,
        python_in_a_branch,
        python_in_an_old_function,
        staged,
        queue,
        loop,
        loop_in_a_function,
        convolution,
        large_weights,
        many_columns_of_batches_of_unknown_size,
        reference_variable,
        function_of_a_variable,
        loss_that_the_gradient_does_not_need,
        two_batches,
        read_of_the_global_step,
        two_handles_of_a_variable,
    ],
)
def test_tensorflows_threads_run_any_other_step(build):
    assert not is_on_caller(build())


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (tf1.ConfigProto(inter_op_parallelism_threads=1), False),
        (tf1.ConfigProto(inter_op_parallelism_threads=-1), False),
        (tf1.ConfigProto(use_per_session_threads=True), False),
        (
            tf1.ConfigProto(
                session_inter_op_thread_pool=[
                    config_pb2.ThreadPoolOptionProto(num_threads=1, global_name="mine")
                ]
            ),
            False,
        ),
        (tf1.ConfigProto(device_count={"CPU": 2}), False),
        (tf1.ConfigProto(allow_soft_placement=True), True),
        (tf1.ConfigProto(intra_op_parallelism_threads=1), True),
    ],
)
def test_a_program_that_chooses_threads_or_devices_gets_them(config, expected):
    assert is_on_caller(training_step(), config) is expected


class Looking(train.SessionRunHook):
    """Fetches the global step at every step, and keeps the values in `found`."""

    def __init__(self):
        self.found = []

    def before_run(self, run_context):
        return train.SessionRunArgs(train.get_global_step())

    def after_run(self, run_context, run_values):
        self.found.append(run_values.results)


@pytest.fixture
def reads(monkeypatch):
    """Return a list that grows at each read of the global step by a call of its own."""
    found, trained = [], GlobalStep.trained

    def counted(self):
        found.append(trained(self))
        return found[-1]

    monkeypatch.setattr(GlobalStep, "trained", counted)
    return found


def test_hooks_get_the_global_step_from_before_the_step_on_the_calling_thread():
    looking = Looking()
    # Nothing makes the step wait for those that read it.
    add = train.get_or_create_global_step().assign_add(1, read_value=False)
    with LoopSession(hooks=[looking]) as session:
        values = [session.run([add, train.get_global_step()])[1] for _ in range(20)]
    assert looking.found == values == list(range(20))


def test_hooks_that_read_the_global_step_cost_no_call_of_their_own(reads):
    looking = Looking()
    global_step = train.get_or_create_global_step()
    with tf.control_dependencies([global_step._graph_element]):
        step = global_step.assign_add(1, read_value=False)
    with LoopSession(hooks=[looking]) as session:
        for _ in range(10):
            session.run(step)
        raw = session.run_step_fn(lambda step_context: step_context.session)
        raw.run(step)
        for _ in range(10):
            session.run(step)
    assert looking.found == [*range(10), *range(11, 21)]
    assert reads == [1, 12]  # after the first step, and after the program's own


def test_the_global_step_of_two_threads_is_what_each_step_has_read(reads):
    looking = Looking()
    add = train.get_or_create_global_step().assign_add(1, read_value=False)
    other = tf.constant(3)
    with LoopSession(hooks=[looking]) as session:
        thread = threading.Thread(target=session.run, args=[other])
        session.run(other)
        thread.start()
        thread.join()
        reads.clear()
        for _ in range(10):
            session.run(add)
    assert reads == []
    assert all(value in (i, i + 1) for i, value in enumerate(looking.found[2:]))
