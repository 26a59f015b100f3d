"""A snapshot keeps the values of its step, whatever is trained while it is held."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.training.saver import BulkSaverBuilder

import estimator_runtime as er
from estimator_runtime.checkpoint.save.snapshot import CannotSnapshot, Snapshot, is_held
from estimator_runtime.config import options

er.install()

tf1 = tf.compat.v1
train = tf1.train


def sgd(momentum=None, adam=False, sparse=False):
    """Return a function that makes a train step of a variable, of its optimizer."""

    def make(variable):
        rows = tf.gather(variable, [3, 5, 3]) if sparse else variable
        loss = tf.reduce_sum(tf.square(rows - 7.0))
        if adam:
            return train.AdamOptimizer(0.1).minimize(loss)
        if momentum:
            return train.MomentumOptimizer(0.1, momentum).minimize(loss)
        return train.GradientDescentOptimizer(0.1).minimize(loss)

    return make


CHANGES = {
    "assign": lambda v: v.assign(v + 1.0),
    "assign_add": lambda v: v.assign_add(tf.ones_like(v)),
    "scatter_update": lambda v: tf1.scatter_update(v, [0, 9], tf.zeros([2, 100])),
    "scatter_nd_add": lambda v: tf1.scatter_nd_add(v, [[1, 2]], [5.0]),
    "strided assign": lambda v: v[2:4].assign(tf.zeros([2, 100])),
    "SGD": sgd(),
    "momentum": sgd(momentum=0.9),
    "Adam": sgd(adam=True),
    "sparse SGD": sgd(sparse=True),
    "sparse momentum": sgd(momentum=0.9, sparse=True),
    "sparse Adam": sgd(adam=True, sparse=True),
}


def values_of(snapshot):
    return dict(
        zip([s.name + s.slice_spec for s in snapshot.saved],
            snapshot.take(), strict=True)
    )  # fmt: skip


def copies(values):
    return {name: np.array(value) for name, value in values.items()}


def changed(values, before):
    return {n for n in values if not np.array_equal(values[n], before[n])}


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_snapshot_stays_as_it_was(change, use_resource):
    with tf.Graph().as_default(), tf1.Session() as session:
        initial = np.arange(1000, dtype=np.float32).reshape(10, 100)
        v = tf1.get_variable("v", initializer=initial, use_resource=use_resource)
        step = change(v)
        saver = train.Saver()
        session.run(tf1.global_variables_initializer())
        snapshot = Snapshot(session, saver)
        held, all_before = [], []
        for _ in range(3):
            held.append(values_of(snapshot))
            all_before.append(copies(held[-1]))
            session.run(step)
        for values, before in zip(held, all_before, strict=True):
            assert changed(values, before) == set()
        assert "v" in changed(values_of(snapshot), held[0])


def test_values_of_resource_variables_are_not_copied():
    with tf.Graph().as_default(), tf1.Session() as session:
        partitioner = tf1.fixed_size_partitioner(2)
        tf1.get_variable("whole", [1000, 4], use_resource=True)
        tf1.get_variable("parts", [1000, 4], partitioner=partitioner, use_resource=True)
        tf1.get_variable("old", [1000, 4], use_resource=False)
        saver = train.Saver(sharded=True)
        session.run(tf1.global_variables_initializer())
        snapshot = Snapshot(session, saver)
        first, second = values_of(snapshot), values_of(snapshot)
        one_buffer = {n for n in first if np.shares_memory(first[n], second[n])}
        assert one_buffer == {
            "whole",
            "parts1000 4 0,500:0,4",
            "parts1000 4 500,500:0,4",
        }
        assert {s.name for s in snapshot.saved if not is_held(s.tensor)} == {"old"}


def test_fused_steps_leave_a_snapshot_as_it_was():
    class Holds(train.SessionRunHook):
        """Takes a snapshot after the steps 1, 11, 21, ..., at which it is called."""

        scheduled_as = train.SessionRunHook

        def begin(self):
            self.held, self.before = [], []

        def after_create_session(self, session, coord):
            self.snapshot = Snapshot(session, tf1.get_collection("savers")[0])

        def after_run(self, run_context, run_values):
            values = values_of(self.snapshot)
            if values["global_step"] % 10 == 1:  # and not at the end of a shorter run
                self.held.append(values)
                self.before.append(copies(values))

    with tf.Graph().as_default():
        v = tf1.get_variable("v", [10, 100])
        loss = tf.reduce_sum(tf.square(v - 1.0))
        global_step = train.get_or_create_global_step()
        step = train.AdamOptimizer(0.1).minimize(loss, global_step)
        hook = Holds()
        chosen = options.TrainingOptions(steps_per_run=10)
        log = train.LoggingTensorHook({"loss": loss}, every_n_iter=10)
        hooks = [hook, log, train.StopAtStepHook(last_step=41)]
        with options.use(chosen), er.MonitoredTrainingSession(hooks=hooks) as s:
            calls = 0
            while not s.should_stop():
                s.run(step)
                calls += 1
    assert calls < 41  # some were of several steps
    assert [int(values["global_step"]) for values in hook.held] == [1, 11, 21, 31, 41]
    for values, before in zip(hook.held, hook.before, strict=True):
        assert changed(values, before) == set()
    assert "v" in changed(hook.held[0], hook.held[1])


def test_texts_scalars_and_all_types_come_as_the_arrays_that_they_are():
    types = [
        tf.bool,
        tf.float16,
        tf.bfloat16,
        tf.float64,
        tf.int8,
        tf.uint16,
        tf.complex64,
    ]
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.get_variable("text", initializer="a\0b")
        tf1.get_variable("texts", initializer=["one", "", "t\0o"])
        tf1.get_variable("scalar", initializer=2.5)
        for each in types:
            tf1.get_variable(each.name, initializer=tf.cast([0, 1, 5], each))
        saver = train.Saver()
        session.run(tf1.global_variables_initializer())
        values = values_of(Snapshot(session, saver))
    assert values["text"].item() == b"a\0b"
    assert values["texts"].tolist() == [b"one", b"", b"t\0o"]
    assert (values["scalar"].shape, values["scalar"].item()) == ((), 2.5)
    assert {each: values[each.name].dtype for each in types} == {
        each: each.as_numpy_dtype for each in types
    }


@pytest.mark.parametrize(
    ("make_saver", "reason"),
    [
        (lambda: train.Saver(write_version=train.SaverDef.V1), "of TensorFlow 0.x"),
        (lambda: type("Mine", (train.Saver,), {})(), "is the program's own, 'Mine'"),
        (lambda: train.Saver(builder=type("Mine", (BulkSaverBuilder,), {})()),
         "a builder of the program's own"),
        (lambda: train.Saver([], allow_empty=True), "nothing to save"),
        (lambda: train.Saver(defer_build=True), "has not been built"),
        (lambda: train.Saver([tf1.get_variable(
            "q", initializer=tf.cast([1], tf.qint8))]), "'q' is of type qint8"),
    ],
    ids=["old format", "own class", "own builder", "empty", "unbuilt", "quantized"],
)  # fmt: skip
def test_what_only_the_saver_can_save_is_left_to_it(make_saver, reason):
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.get_variable("v", initializer=1.0)
        saver = make_saver()
        with pytest.raises(CannotSnapshot, match=reason):
            Snapshot(session, saver)


def test_a_session_of_a_cluster_is_left_to_the_saver():
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default(), tf1.Session(server.target) as session:
        tf1.get_variable("v", initializer=1.0)
        with pytest.raises(CannotSnapshot, match="other tasks of a cluster"):
            Snapshot(session, train.Saver())
