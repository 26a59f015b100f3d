"""Sessions that end, and those that are made after them, or in their place."""

import gc
import threading
import weakref

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options

tf1 = tf.compat.v1
train = tf1.train
STOCK = monitored_session.MonitoredTrainingSession


@pytest.fixture
def step():
    """The train op of a graph in which runs have up to 7 steps."""
    with (
        tf.Graph().as_default(),
        options.use(options.TrainingOptions(steps_per_run=7)),
    ):
        yield train.get_or_create_global_step().assign_add(1)


def test_a_session_closed_by_the_program_is_said_to_be_closed(step):
    with (
        pytest.raises(RuntimeError, match="Attempted to use a closed Session"),
        er.MonitoredTrainingSession() as session,
    ):
        assert [session.run(step) for _ in range(3)] == [1, 2, 9]
        session._tf_sess().close()
        session.run(step)


def test_a_closed_session_is_freed_without_the_garbage_collector(step):
    gc.collect()
    gc.disable()
    try:
        with er.MonitoredTrainingSession() as session:
            assert [session.run(step) for _ in range(3)] == [1, 2, 9]
            alive = weakref.ref(session._tf_sess())
        assert alive() is None
    finally:
        gc.enable()


def lose(session):
    with session._coordinated_creator.coord.stop_on_exception():
        raise tf.errors.AbortedError(None, None, "lost")
    assert not session.should_stop()  # and makes a new session


def test_sessions_that_are_made_again_add_nothing_to_the_graph(step):
    sizes = []
    with er.MonitoredTrainingSession() as session:
        for _ in range(4):  # sessions
            assert [session.run(step) for _ in range(3)] == [1, 2, 9]
            sizes.append(len(step.graph.get_operations()))
            lose(session)
    assert sizes == sizes[:1] * 4


def test_a_session_runs_several_steps_beside_the_loop_of_another_one(step):
    trained = train.get_global_step()
    for value in (trained * 2, trained * 3, trained * 2):
        hook = train.LoggingTensorHook({"value": value}, every_n_iter=7)
        with er.MonitoredTrainingSession(hooks=[hook]) as session:
            # The hook sees the steps 1 and 8.
            assert [session.run(step) for _ in range(4)] == [1, 2, 7, 8]


def run_a_function(session, other):
    session.run_step_fn(lambda step_context: None)


def take_turns(session, other):
    session.run(other)


def share(session, other):
    thread = threading.Thread(target=session.run, args=[other])
    thread.start()
    thread.join()


@pytest.mark.parametrize("use", [run_a_function, take_turns, share])
def test_what_needs_single_steps_gets_them_in_the_next_session_too(use, caplog):
    def steps(make_session):
        hooks = [train.StopAtStepHook(last_step=30)]
        with tf.Graph().as_default():
            step = train.get_or_create_global_step().assign_add(1)
            other = tf.constant(3)
            with make_session(hooks=hooks) as session:
                found = [session.run(step)]
                use(session, other)
                found += [session.run(step) for _ in range(2)]
                lose(session)
                return found + [session.run(step) for _ in range(4)]

    with options.use(options.TrainingOptions(steps_per_run=7)):
        ours = steps(er.MonitoredTrainingSession)
    assert ours == steps(STOCK)
    assert 1 in ours[1:]  # of the next session
    told = [r for r in caplog.records if r.name == "estimator_runtime.loop.run_length"]
    assert len(told) == 1


def test_a_function_that_is_repeated_in_a_new_session_runs_single_steps(step):
    lost = iter([tf.errors.AbortedError(None, None, "lost")])

    def turn(step_context):
        found = [step_context.run_with_hooks(step)]
        for error in lost:
            raise error
        return found + [step_context.run_with_hooks(step) for _ in range(3)]

    with er.MonitoredTrainingSession() as session:
        assert session.run_step_fn(turn) == [1, 2, 3, 4]
