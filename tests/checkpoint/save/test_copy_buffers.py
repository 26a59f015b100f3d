"""Buffers are kept where saves are frequent, and are never written to while in use."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.save.snapshot import CopyBuffers, Snapshot
from estimator_runtime.checkpoint.save.target import Target

er.install()

tf1 = tf.compat.v1
_MB = 1 << 20


class Machine:
    """The time in seconds, and the available memory in MB."""

    def __init__(self):
        self.secs, self.available_mb = 1000.0, 1000

    def buffers(self, held=()):
        return CopyBuffers(held, lambda: self.secs, lambda: self.available_mb)


@pytest.fixture
def machine():
    return Machine()


def value(number=1.0, megabytes=1):
    return np.full(megabytes * _MB // 4, number, np.float32)


def save(buffers, machine, *values, after_secs=10.0):
    """Return the places that are copied, as a save and its write do."""
    machine.secs += after_secs
    copies = buffers.copies(values)
    buffers.release(copies)
    buffers.allocate()
    return set(copies)


def test_buffers_are_used_after_two_frequent_saves(machine):
    buffers = machine.buffers()
    small, text, scalar = np.ones(10), np.array([b"a"] * _MB), np.float32(1)
    values = value(), small, text.astype(object), scalar
    assert [save(buffers, machine, *values) for _ in range(4)] == [
        *(set(), set(), set()),
        {0},
    ]
    assert buffers.bytes == _MB


def test_saves_that_are_a_minute_apart_get_no_buffers(machine):
    buffers = machine.buffers()
    for _ in range(5):
        assert save(buffers, machine, value(), after_secs=60.0) == set()
    assert buffers.bytes == 0


def test_a_late_save_frees_the_buffers(machine):
    buffers = machine.buffers()
    for _ in range(4):
        save(buffers, machine, value())
    assert save(buffers, machine, value(), after_secs=60.0) == set()
    assert buffers.bytes == 0


@pytest.mark.parametrize(("available_mb", "kept"), [(39, 0), (40, 10 * _MB)])
def test_buffers_need_four_times_their_size(machine, available_mb, kept):
    machine.available_mb = available_mb
    buffers = machine.buffers()
    for _ in range(3):
        save(buffers, machine, value(megabytes=10))
    assert buffers.bytes == kept


def test_no_buffers_are_allocated_where_the_memory_is_unknown(machine):
    machine.available_mb = None
    buffers = machine.buffers()
    for _ in range(3):
        save(buffers, machine, value())
    assert buffers.bytes == 0


def test_buffers_that_cannot_be_allocated_are_done_without(machine, monkeypatch):
    def refused(*_):
        raise MemoryError

    buffers = machine.buffers()
    with monkeypatch.context() as limited:
        limited.setattr(np, "empty", refused)
        assert [save(buffers, machine, value()) for _ in range(4)] == [set()] * 4
    assert buffers.bytes == 0
    assert [save(buffers, machine, value()) for _ in range(3)][-1] == {0}


def test_short_memory_frees_the_buffers(machine):
    buffers = machine.buffers()
    for _ in range(3):
        save(buffers, machine, value(megabytes=10))
    machine.available_mb = 9
    assert save(buffers, machine, value(megabytes=10)) == set()
    assert buffers.bytes == 0


def test_a_copy_is_not_overwritten_before_it_is_released(machine):
    buffers = machine.buffers()
    for _ in range(3):
        save(buffers, machine, value())
    copies = buffers.copies([value(1.0)])
    assert buffers.copies([value(2.0)]) == {}
    buffers.release({})  # of the save that got none
    assert buffers.copies([value(2.0)]) == {}
    np.testing.assert_array_equal(copies[0], value(1.0))
    buffers.release(copies)
    np.testing.assert_array_equal(buffers.copies([value(3.0)])[0], value(3.0))


def test_a_late_release_of_freed_buffers_does_not_free_new_ones(machine):
    buffers = machine.buffers()
    for _ in range(3):
        save(buffers, machine, value())
    old = buffers.copies([value(1.0)])
    buffers.free()
    for _ in range(3):
        save(buffers, machine, value())
    new = buffers.copies([value(2.0)])
    buffers.release(old)
    assert buffers.copies([value(3.0)]) == {}
    np.testing.assert_array_equal(new[0], value(2.0))


def test_a_value_of_another_shape_or_type_is_not_copied(machine):
    buffers = machine.buffers()
    for _ in range(3):
        save(buffers, machine, value())
    assert buffers.copies([value(megabytes=2)]) == {}
    assert buffers.copies([value().astype(np.int32)]) == {}


def test_a_held_value_that_no_step_moves_has_no_buffer(machine):
    buffers = machine.buffers(held={0, 1})
    frozen, trained = value(1.0), [value(float(i)) for i in range(4)]
    copied = [save(buffers, machine, frozen, each) for each in trained]
    assert copied == [set(), set(), set(), {1}]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int64])
def test_snapshots_are_equal_with_and_without_buffers(dtype, use_resource):
    with tf.Graph().as_default(), tf1.Session() as session:
        v = tf1.get_variable(
            "v",
            initializer=tf.cast(tf.reshape(tf.range(_MB), [1024, -1]), dtype),
            use_resource=use_resource,
        )
        step = v.assign_add(tf.ones_like(v))
        saver = tf1.train.Saver()
        session.run(tf1.global_variables_initializer())
        snapshot = Snapshot(session, saver)
        for number in range(6):
            values = snapshot.take()
            expected = session.run(v).copy()
            session.run(step)
            np.testing.assert_array_equal(values.arrays[0], expected)
            snapshot.buffers.release(values.copies)
            del values
            snapshot.buffers.allocate()
            assert (snapshot.buffers.bytes > 0) == (number >= 2)


def test_a_write_that_is_dropped_releases_its_buffers(tmp_path):
    with tf.Graph().as_default(), tf1.Session() as session:
        v = tf1.get_variable("v", initializer=tf.zeros([_MB]), use_resource=False)
        saver = tf1.train.Saver()
        session.run(v.initializer)
        target = Target(session, saver, str(tmp_path / "model.ckpt"))
        for step in range(3):
            write, _ = target.prepare(step)
            write()
        buffers = target._snapshot.buffers
        assert buffers.bytes > 0
        write, _ = target.prepare(3)
        assert buffers.copies([session.run(v)]) == {}  # they are in use
        del write
        assert buffers.copies([session.run(v)]).keys() == {0}
