"""Examples per second, beside TensorFlow's steps per second."""

import logging
import threading

import pytest
import tensorflow as tf
from tensorflow.python.platform import tf_logging

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


@pytest.mark.parametrize(("drop_remainder", "known"), [(True, 8), (False, None)])
def test_the_batch_size_is_known_with_the_shapes_of_tensorflow_1(drop_remainder, known):
    tf.compat.v1.disable_v2_tensorshape()
    try:
        with tf.Graph().as_default() as graph:
            inputs(8, drop_remainder)
            assert batch_size(graph) == known
    finally:
        tf.compat.v1.enable_v2_tensorshape()


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


@pytest.mark.parametrize(
    ("seen", "warnings"),
    [
        ([1, 2, 2, 4, 4, 6], 0),  # read after its own increase, then before
        ([1, 2, 2, 2], 1),
        ([7, 7, 7, 7], 2),
    ],
)
def test_a_global_step_is_said_to_stand_still_only_where_it_does(
    tmp_path, caplog, monkeypatch, seen, warnings
):
    # TensorFlow says it five times in a process.
    monkeypatch.setattr(tf_logging, "_log_counter_per_token", {})
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        hook = StepRateHook(output_dir=str(tmp_path), every_n_steps=100)
        hook.begin()
        with tf.compat.v1.Session() as session:
            session.run(step.initializer)
            hook.after_create_session(session, None)
            context = tf.compat.v1.train.SessionRunContext(None, session)
            for value in seen:
                values = tf.compat.v1.train.SessionRunValues(value, None, None)
                hook.after_run(context, values)
    said = [m for m in caplog.messages if "has not been increased" in m]
    assert len(said) == warnings


# Of the threads that TensorFlow starts for the tokens, when their session is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_global_step_that_aggregates_batches_counts_all_their_examples(tmp_path):
    with tf.Graph().as_default():
        features, labels = inputs(8, drop_remainder=True)
        weight = tf.compat.v1.get_variable("weight", initializer=0.0)
        loss = tf.reduce_mean(weight * features) + tf.reduce_mean(tf.cast(labels, tf.float32))  # fmt: skip
        optimizer = tf.compat.v1.train.SyncReplicasOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.1), 3, 3
        )
        step = tf.compat.v1.train.get_or_create_global_step()
        optimizer.minimize(loss, step)
        hook = optimizer.make_session_run_hook(is_chief=True)
        session = er.MonitoredTrainingSession(
            checkpoint_dir=str(tmp_path), hooks=[hook]
        )
        with session:
            [rates] = [h for h in session._hooks if isinstance(h, StepRateHook)]
            rates._log_and_record(10, 2.0, 50)
    for thread in threading.enumerate():
        if thread.name.startswith("QueueRunnerThread"):
            thread.join(30)
    [events] = tmp_path.glob("events.*")
    found = {
        value.tag: value.simple_value
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    assert (found["global_step/sec"], found["examples/sec"]) == (5.0, 3 * 8 * 5.0)


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
