"""The calling thread runs a step if nothing in its graph could tell the difference."""

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

from estimator_runtime.loop.caller_thread import CallingThread
from estimator_runtime.loop.denormals import DenormalFlush
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


def embedding():
    table = tf1.get_variable("table", [1000, 4])
    names = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64)), 0
    )
    found = [names.lookup(tf.constant([each])) for each in ("a", "b")]
    return minimized(tf.reduce_sum(tf.nn.embedding_lookup(table, found) ** 2))


def what_hooks_fetch():
    step = train.get_or_create_global_step()
    read = training_util._get_or_create_global_step_read()
    return [minimized(tf.reduce_sum(variable() ** 2)), step, read]


def function_of_numbers():
    x = tf.function(lambda x: tf.function(tf.tanh)(x) + 1)(iterator().get_next())
    return tf.cond(x > 0, lambda: x, lambda: -x)


@pytest.mark.parametrize(
    "build",
    [
        training_step,
        embedding,
        what_hooks_fetch,
        function_of_numbers,
    ],
)
def test_the_calling_thread_runs_a_small_step_of_ordered_ops(build):
    assert is_on_caller(build())


def python():
    return tf1.py_func(lambda: 1.0, [], tf.float32)


def python_in_a_function():
    return tf.function(lambda: tf.function(python)() + 1)()


def python_in_a_branch():
    return tf.cond(
        iterator().get_next() > 0, lambda: tf.ensure_shape(python(), []), lambda: 1.0
    )


def queue():
    return tf1.FIFOQueue(3, [tf.float32]).dequeue()


def loop():
    return tf.while_loop(lambda x: x < 3, lambda x: [x + 1], [tf.constant(0)])


def convolution():
    return tf.nn.conv2d(tf.zeros([1, 4, 4, 1]), tf.zeros([2, 2, 1, 1]), 1, "VALID")


def large_weights():
    weights = tf1.get_variable("large", [300, 300])
    return minimized(tf.reduce_sum(weights**2))


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
        python_in_a_function,
        python_in_a_branch,
        queue,
        loop,
        convolution,
        large_weights,
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
        (tf1.ConfigProto(use_per_session_threads=True), False),
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


def test_hooks_get_the_global_step_from_before_the_step_on_the_calling_thread():
    looking = Looking()
    # Nothing makes the step wait for those that read it.
    add = train.get_or_create_global_step().assign_add(1, read_value=False)
    with LoopSession(hooks=[looking]) as session:
        values = [session.run([add, train.get_global_step()])[1] for _ in range(20)]
    assert looking.found == values == list(range(20))
