"""Examples per second, beside TensorFlow's steps per second."""

import logging

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.session.hooks.step_rate import (
    StepRateHook,
    TaskRateHook,
    batch_size,
)

er.install()


def inputs(size, drop_remainder):
    data = tf.data.Dataset.from_tensors(([1.0, 2.0], 3)).repeat()
    batches = data.batch(size, drop_remainder=drop_remainder)
    return tf.compat.v1.data.make_one_shot_iterator(batches).get_next()


@pytest.mark.parametrize(("drop_remainder", "known"), [(True, 8), (False, None)])
def test_the_batch_size_is_known_where_all_outputs_of_the_input_share_it(
    drop_remainder, known
):
    with tf.Graph().as_default() as graph:
        assert batch_size(graph) is None
        inputs(8, drop_remainder)
        assert batch_size(graph) == known


def test_examples_per_second_are_steps_per_second_times_the_batch_size(
    tmp_path, caplog
):
    caplog.set_level(logging.INFO, logger="tensorflow")
    with tf.Graph().as_default():
        features, _ = inputs(8, drop_remainder=True)
        step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        with er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), log_step_count_steps=5
        ) as session:
            assert any(isinstance(hook, StepRateHook) for hook in session._hooks)
            for _ in range(12):
                session.run([features, step])
    [events] = tmp_path.glob("events.*")
    rates = {
        (value.tag, event.step): value.simple_value
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    assert {step for tag, step in rates if tag == "examples/sec"} == {6, 11}
    for step in (6, 11):
        expected = 8 * rates["global_step/sec", step]
        assert rates["examples/sec", step] == pytest.approx(expected, rel=1e-5)
    lines = [m for m in caplog.messages if m.startswith("examples/sec: ")]
    assert len(lines) == 2


def test_a_task_logs_the_rate_of_its_own_steps(caplog):
    caplog.set_level(logging.INFO, logger="tensorflow")
    seconds = iter([10.0, 14.0, 15.0])  # of the steps 1, 9 and 17
    with tf.Graph().as_default():
        features, _ = inputs(8, drop_remainder=True)
        hook = TaskRateHook(8, clock=lambda: next(seconds))
        with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(20):
                session.run(features)
    assert [m for m in caplog.messages if "of this task" in m] == [
        "steps/sec of this task: 2",
        "examples/sec of this task: 16",
        "steps/sec of this task: 8",
        "examples/sec of this task: 64",
    ]


@pytest.mark.timeout(60)
def test_a_worker_of_a_cluster_logs_its_rate_and_the_chief_that_of_all(
    tmp_path, caplog
):
    caplog.set_level(logging.INFO, logger="tensorflow")
    server = tf.compat.v1.train.Server.create_local_server()
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        with er.MonitoredTrainingSession(
            server.target, checkpoint_dir=str(tmp_path), log_step_count_steps=5
        ) as chief:
            with er.MonitoredTrainingSession(
                server.target, is_chief=False, log_step_count_steps=5
            ) as worker:
                for _ in range(6):
                    worker.run(step)
            for _ in range(6):
                chief.run(step)
    lines = [m.partition(":")[0] for m in caplog.messages if "/sec" in m]
    assert lines == ["steps/sec of this task", "global_step/sec"]
