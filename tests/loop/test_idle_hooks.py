"""Steps at which no hook would do anything are run without calling any.

What hooks do, and at which step, must be the same as with TensorFlow's session, which
calls them at every step.
"""

import math
import time

import pytest
import tensorflow as tf
from tensorflow.python.training import training_util

import estimator_runtime
from estimator_runtime.loop.session import LoopSession
from estimator_runtime.tf_internals import graphs

estimator_runtime.install()
tf1 = tf.compat.v1
train = tf1.train
pytestmark = pytest.mark.usefixtures("graph")


def step_op():
    """Return an op that adds 1 to the global step, once hooks have read it."""
    train.get_or_create_global_step()
    return training_util._increment_global_step(1).op


def steps_until_stop(session, step, limit=1000):
    count = 0
    while not session.should_stop():
        session.run(step)
        count += 1
        assert count < limit
    return count


def test_a_step_that_is_counted_in_a_branch_is_seen_by_all_hooks(
    old_control_flow, seen_steps
):
    step = train.get_or_create_global_step()
    calls = tf1.get_variable("calls", initializer=0, trainable=False).assign_add(1)
    counted = tf.cond(calls % 2 < 1, lambda: step.assign_add(1), lambda: step.value())
    with LoopSession(hooks=[train.StopAtStepHook(last_step=20)]) as session:
        assert steps_until_stop(session, counted.op) == 40
    assert len(seen_steps) == 40


@pytest.mark.parametrize(
    "interval", [{"save_checkpoint_steps": 50}, {"save_checkpoint_secs": 1000}]
)
def test_the_runtimes_own_saver_is_called_where_it_is_due(
    seen_steps, tmp_path, interval
):
    step = step_op()
    with estimator_runtime.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path),
        hooks=[train.StopAtStepHook(last_step=100)],
        save_summaries_steps=None,
        log_step_count_steps=None,
        **interval,
    ) as session:
        assert steps_until_stop(session, step) == 100
    # The first two, those due (50 and 100, or only the last one), and 51.
    assert len(seen_steps) == (5 if "save_checkpoint_steps" in interval else 3)


def test_the_caller_gets_the_global_step_that_it_reads_after_the_step(monitored):
    global_step = train.get_or_create_global_step()
    with tf.control_dependencies([global_step.assign_add(1, read_value=False)]):
        after = global_step.read_value()
    tf1.add_to_collection(graphs.GLOBAL_STEP_READ_KEY, after)
    with monitored(hooks=[train.StopAtStepHook(last_step=30)]) as session:
        assert [session.run(after) for _ in range(20)] == list(range(1, 21))


def test_hooks_see_that_the_program_has_changed_the_global_step(monitored):
    step = step_op()
    with monitored(hooks=[train.StopAtStepHook(last_step=50)]) as session:
        for _ in range(10):
            session.run(step)
        raw = session.run_step_fn(lambda step_context: step_context.session)
        for _ in range(20):
            raw.run(step)
        assert steps_until_stop(session, step) == 20


def test_a_global_step_that_a_branch_changes_too_is_looked_at_every_step(
    monitored, info, tmp_path
):
    train.get_or_create_global_step()
    global_step = train.get_global_step()
    with tf.control_dependencies([global_step._graph_element]):
        one = global_step.assign_add(1)
    with tf.control_dependencies([one]):
        now = global_step.read_value()
    step = tf.cond(
        tf.equal(now, 37),
        lambda: tf.identity(global_step.assign_add(20)),
        lambda: tf.identity(now),
    ).op
    hooks = [
        train.CheckpointSaverHook(str(tmp_path / "model"), save_steps=40),
        train.StopAtStepHook(last_step=100),
    ]
    with monitored(hooks=hooks) as session:
        assert steps_until_stop(session, step) == 80
    saved = [line.split()[3] for line in info.messages if line.startswith("Saving")]
    assert saved == ["0", "57", "97", "100"]


@pytest.mark.parametrize("bad", [2, 3, 4, 20])
def test_a_loss_that_becomes_nan_is_seen_at_its_step(monitored, bad):
    step = step_op()
    global_step = train.get_global_step()
    with tf.control_dependencies([step]):
        is_bad = tf.equal(global_step.read_value(), bad)
        loss = tf.where(is_bad, math.nan, 1.0)
    hooks = [train.NanTensorHook(loss), train.StopAtStepHook(last_step=30)]
    done = []
    with (
        pytest.raises(train.NanLossDuringTrainingError),
        monitored(hooks=hooks) as session,
    ):
        while True:
            done.append(session.run(loss))
    assert done == [1.0] * (bad - 1)


def lines(caplog, start="value = "):
    return [m.partition(" (")[0] for m in caplog.messages if m.startswith(start)]


def counting_logger(**timing):
    """Return a hook that logs how often its tensor has been computed."""
    count = tf.Variable(0, use_resource=True, collections=["local_variables"])
    return train.LoggingTensorHook({"value": count.assign_add(1)}, **timing)


@pytest.fixture
def info(caplog):
    caplog.set_level("INFO", logger="tensorflow")
    return caplog


def test_what_a_hook_fetches_is_computed_only_where_it_is_due(monitored, info):
    step, fed = step_op(), tf1.placeholder_with_default(0, [])
    hooks = [counting_logger(every_n_iter=10), train.StopAtStepHook(last_step=40)]
    with monitored(hooks=hooks) as session:
        for i in range(40):
            feeds = {fed: i} if i % 10 in (7, 9) else None  # fed, just before due ones
            session.run(step, feeds)
    assert lines(info) == ["value = 1", "value = 2", "value = 3", "value = 4"]


class EveryFifth:
    """A timer of the program's own."""

    def reset(self):
        self.last = None

    def should_trigger_for_step(self, step):
        return step % 5 == 0

    def update_last_triggered_step(self, step):
        return None, None

    def last_triggered_step(self):
        return None


def test_a_timer_of_the_programs_own_is_asked_at_every_step(monitored, info):
    step = step_op()
    logger = train.LoggingTensorHook({"value": tf.constant(1)}, every_n_iter=10)
    logger._timer = EveryFifth()
    with monitored(hooks=[logger, train.StopAtStepHook(last_step=30)]) as session:
        steps_until_stop(session, step)
    assert len(lines(info)) == 6


def test_a_checkpoint_whose_time_comes_in_a_step_is_of_that_step(
    monitored, now, tmp_path
):

    def work(step):
        now[0] += 61 if step == 12 else 0
        return step

    add = step_op()
    with tf.control_dependencies([add]):
        value = train.get_global_step().read_value()
    worked = tf.numpy_function(work, [value], tf.int64)
    tf1.add_to_collection(tf1.GraphKeys.SAVERS, train.Saver(max_to_keep=99))
    hook = train.CheckpointSaverHook(str(tmp_path), save_secs=60)
    with monitored(hooks=[hook, train.StopAtStepHook(last_step=30)]) as session:
        steps_until_stop(session, worked)
    saved = train.get_checkpoint_state(tmp_path).all_model_checkpoint_paths
    assert [path.rpartition("-")[2] for path in saved] == ["0", "12", "30"]


def test_steps_are_counted_also_when_the_session_is_lost(monitored, info):
    step = step_op()
    logger = train.LoggingTensorHook({"value": tf.constant(1)}, every_n_iter=10)
    with monitored(hooks=[logger, train.StopAtStepHook(last_step=100)]) as session:
        for _ in range(6):
            session.run(step)
        with session._coordinated_creator.coord.stop_on_exception():
            raise tf.errors.AbortedError(None, None, "lost")
        assert not session.should_stop()  # and makes a new session
        for _ in range(5):
            session.run(step)
    assert len(lines(info)) == 2  # after the runs 1 and 11


@pytest.mark.timeout(120)
def test_a_wall_clock_that_is_set_back_a_day_keeps_nothing_from_its_time(
    monitored, monkeypatch, tmp_path, info
):
    wall = time.time
    step = step_op()
    hooks = [
        train.CheckpointSaverHook(str(tmp_path), save_secs=0.01),
        train.LoggingTensorHook({"value": tf.constant(1)}, every_n_secs=0.01),
        train.SummarySaverHook(
            save_secs=0.01, output_dir=str(tmp_path), summary_op=tf.constant(b"")
        ),
    ]
    with monitored(hooks=hooks) as session:
        session.run(step)
        session.run(step)
        monkeypatch.setattr("time.time", lambda: wall() - 24 * 3600)
        saved = len(lines(info, "Saving checkpoints"))
        logged = len(lines(info))
        summarized = hooks[2]._timer.last_triggered_step()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (
            len(lines(info, "Saving checkpoints")) > saved
            and len(lines(info)) > logged
            and hooks[2]._timer.last_triggered_step() > summarized
        ):
            session.run(step)
    assert time.monotonic() < deadline
