"""A step on the calling thread flushes denormals as TensorFlow's threads do."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.loop import caller_thread
from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.session import LoopSession

tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")
TINY = np.finfo(np.float32).tiny  # the smallest number that is no denormal


def keeps_denormals():
    """Return whether this thread's arithmetic does."""
    return bool(np.array([TINY], np.float32)[0] * np.float32(0.5))


@pytest.fixture
def flush():
    flush = DenormalFlush.of_this_machine()
    if flush is None:
        pytest.skip("steps always run on TensorFlow's threads on this machine")
    return flush


def test_a_wrapped_function_flushes_and_the_thread_does_not_afterwards(flush):
    def call(*args):
        return keeps_denormals(), args

    assert keeps_denormals()
    assert flush.wrap(call)(1, 2) == (False, (1, 2))
    assert keeps_denormals()


def test_a_wrapped_function_that_fails_leaves_the_thread_as_it_was(flush):
    def fail():
        raise KeyError(keeps_denormals())

    with pytest.raises(KeyError) as caught:
        flush.wrap(fail)()
    assert caught.value.args == (False,)
    assert keeps_denormals()


def test_a_thread_that_flushes_goes_on_flushing(flush):
    inner = flush.wrap(keeps_denormals)
    outer = flush.wrap(lambda: (inner(), keeps_denormals()))
    assert outer() == (False, False)
    assert keeps_denormals()


def test_the_threads_arithmetic_is_its_own_between_steps(monitored):
    class Looking(train.SessionRunHook):
        def before_run(self, run_context):
            found.append(keeps_denormals())

        def after_run(self, run_context, run_values):
            found.append(keeps_denormals())

    found = []
    fading = tf.Variable(TINY) * 0.5
    with monitored(hooks=[Looking()]) as session:
        values = [session.run(fading) for _ in range(3)]
        found.append(keeps_denormals())
    assert (values, found) == ([0.0] * 3, [True] * 7)


def constant(x):
    return tf.constant(x)


def iterated(x):
    iterator = tf1.data.make_initializable_iterator(
        tf.data.Dataset.from_tensors(x).repeat()
    )
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


def called(x):
    return tf.function(lambda x: tf.cond(x[0, 0] < 1, lambda: x, lambda: -x))(x)


def fading_step(read):
    """Return a step in which weights, gradients, slots and products fade out."""
    random = np.random.RandomState(0)
    small, smaller = (
        (random.normal(size=shape) * 1e-19).astype(np.float32)
        for shape in ([8, 4], [4, 3])
    )
    step = train.get_or_create_global_step()
    weights = tf1.get_variable("weights", initializer=smaller)
    products = tf1.get_variable("products", initializer=np.zeros([8, 3], np.float32))
    product = tf.matmul(tf.ensure_shape(read(small), [8, 4]), weights)
    # Gradients for three steps only: after them, Adam's slots decay.
    loss = tf.reduce_sum(product * 1e19) * tf.cast(step < 3, tf.float32)
    with tf.control_dependencies([products.assign_add(product)]):
        return train.AdamOptimizer(1e-20, 0.6, 0.7).minimize(loss, step)


def bits_after_training(make_session, read, steps=300):
    """Return name to bytes of all variables, after every 20 steps."""
    with tf.Graph().as_default():
        step = fading_step(read)
        variables = {v.op.name: v for v in tf1.global_variables()}
        found = []
        with make_session() as session:
            for i in range(steps):
                session.run(step)
                if i % 20 == 0:
                    values = session.run(variables)
                    found.append({name: v.tobytes() for name, v in values.items()})
        return found


READS = [constant, iterated, called]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("is_caller", [False, True])
def test_every_thread_gives_the_same_bits(flush, read, is_caller, monkeypatch):
    stock = bits_after_training(train.MonitoredSession, read)
    monkeypatch.setattr(caller_thread, "fits", lambda step: is_caller)
    assert bits_after_training(LoopSession, read) == stock


@pytest.mark.parametrize("read", READS)
def test_without_flushing_the_bits_would_differ(flush, read, monkeypatch):
    # Or else the test above could not fail.
    monkeypatch.setattr(DenormalFlush, "wrap", lambda self, function: function)
    monkeypatch.setattr(caller_thread, "fits", lambda step: True)
    stock = bits_after_training(train.MonitoredSession, read)
    found = bits_after_training(LoopSession, read)
    differing = {
        name
        for a, b in zip(stock, found, strict=True)
        for name in a
        if a[name] != b[name]
    }
    assert {"products", "weights/Adam", "weights/Adam_1"} <= differing
