"""Training through MonitoredTrainingSession, step by step as TensorFlow's does it."""

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session, training_util

import estimator_runtime as er

train = tf.compat.v1.train
STOCK = monitored_session.MonitoredTrainingSession


class Recorder(train.SessionRunHook):
    """Writes every call down; `act` is called with each event, and may raise."""

    def __init__(self, name, log, act=lambda event: None):
        self._name, self._log, self._act = name, log, act

    def _record(self, event, *details):
        self._log.append((self._name, event, *details))
        self._act((event, *details))

    def begin(self):
        self._step = train.get_global_step()
        self._batch = self._step.graph.get_tensor_by_name("batch:0")
        self._record("begin", self._step.graph.finalized)

    def after_create_session(self, session, coord):
        step = session.run(self._step)
        self._record("after_create_session", step, type(session), coord.should_stop())

    def before_run(self, run_context):
        fetches = sorted(run_context.original_args.fetches)
        self._record("before_run", fetches, run_context.stop_requested)
        return train.SessionRunArgs({"batch": self._batch})

    def after_run(self, run_context, run_values):
        self._record("after_run", run_values.results, run_context.stop_requested)

    def end(self, session):
        self._record("end", session.run(self._step))


def build_model(steps_of_data=100):
    """Build w -> 0.8 w, with data for so many steps; returns the fetches of a step."""
    data = tf.compat.v1.data.make_one_shot_iterator(
        tf.data.Dataset.range(steps_of_data)
    )
    batch = tf.identity(data.get_next(), "batch")
    weight = tf.compat.v1.get_variable("weight", initializer=1.0)
    global_step = train.get_or_create_global_step()
    # Nothing else keeps hooks from reading the step when it has been increased.
    read_before = training_util._get_or_create_global_step_read()
    with tf.control_dependencies([batch, read_before]):
        loss = tf.square(weight)
    tf.compat.v1.summary.scalar("loss", loss)
    train_op = train.GradientDescentOptimizer(0.1).minimize(loss, global_step)
    return {"train_op": train_op, "loss": loss}


def run(function, log, *hooks, steps_of_data=100, **arguments):
    """Train until a hook or the data stops it; losses and exception go to the log."""
    with tf.Graph().as_default():
        fetches = build_model(steps_of_data)
        try:
            with function(hooks=hooks, **arguments) as session:
                while not session.should_stop():
                    log.append(round(float(session.run(fetches)["loss"]), 4))
        except ValueError as error:
            log.append(str(error))
        log.append("out")
    return log


def logs_of_both(train_with, tmp_path):
    """Log of the same training with ours and with TensorFlow's session."""
    logs = []
    for function in er.MonitoredTrainingSession, STOCK:
        folder = tmp_path / function.__module__
        logs.append(train_with(function, [], str(folder)))
    return logs


def stop_at(step):
    return train.StopAtStepHook(last_step=step)


def checkpoint_steps(folder):
    paths = tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths
    return [int(path.rpartition("-")[2]) for path in paths]


def summary_steps(folder):
    """Tag to the steps at which it was written, but for what checkpoints cost."""
    steps = {}
    for path in folder.glob("events.*"):
        for event in train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag.startswith("checkpoint/"):
                    continue
                steps.setdefault(value.tag, []).append(event.step)
    return steps


def test_hooks_see_what_they_see_in_tensorflows_session(tmp_path):
    def train_with(function, log, folder):
        hooks = [Recorder("first", log), stop_at(4), Recorder("last", log)]
        chief = [Recorder("chief", log)]
        return run(function, log, *hooks, checkpoint_dir=folder, chief_only_hooks=chief)

    ours, stock = logs_of_both(train_with, tmp_path)
    assert ours == stock
    assert ("last", "after_run", {"batch": 3}, True) in ours


def test_an_exception_passes_as_in_tensorflows_session(tmp_path):
    def train_with(function, log, folder):
        def act(event):
            if event[:2] == ("after_run", {"batch": 2}):
                raise ValueError("of the user's hook")

        hook = Recorder("hook", log, act)
        log = run(function, log, hook, checkpoint_dir=folder)
        return [*log, checkpoint_steps(folder)]

    ours, stock = logs_of_both(train_with, tmp_path)
    assert ours == stock
    assert ours[-3:] == ["of the user's hook", "out", [0]]


def test_a_lost_session_is_made_again_as_in_tensorflows_session(tmp_path):
    def train_with(function, log, folder):
        failures = [tf.errors.AbortedError(None, None, "lost")]

        def act(event):
            if event[:2] == ("after_run", {"batch": 4}) and failures:
                raise failures.pop()

        hooks = [Recorder("hook", log, act), stop_at(6)]
        arguments = {"checkpoint_dir": folder, "save_checkpoint_steps": 2}
        return run(function, log, *hooks, **arguments)

    ours, stock = logs_of_both(train_with, tmp_path)
    assert ours == stock
    assert [event[2] for event in ours if "after_create_session" in str(event)] == [
        0,
        4,
    ]


@pytest.mark.parametrize(
    ("interval", "saved"),
    [
        ({"save_checkpoint_steps": 3}, [0, 3, 6, 8]),
        ({"save_checkpoint_steps": 100}, [0, 8]),
        ({"save_checkpoint_secs": 1000}, [0, 8]),
        ({}, [0, 8]),
    ],
)
def test_checkpoints_are_saved_at_the_start_between_and_at_the_end(
    interval, saved, tmp_path
):
    def train_with(function, log, folder):
        run(function, log, stop_at(8), checkpoint_dir=folder, **interval)
        return checkpoint_steps(folder)

    assert logs_of_both(train_with, tmp_path) == [saved, saved]


def test_summaries_go_to_their_own_folder(tmp_path):
    model, summaries = tmp_path / "model", tmp_path / "summaries"
    run(
        er.MonitoredTrainingSession,
        [],
        stop_at(5),
        checkpoint_dir=model,
        summary_dir=summaries,
        save_summaries_steps=2,
    )
    assert checkpoint_steps(model) == [0, 5]
    assert summary_steps(model) == {}  # only where the checkpoints are
    assert summary_steps(summaries) == {"loss": [1, 3, 5]}


def test_feeds_and_run_metadata_reach_the_step():
    with tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.float32, [])
        doubled = 2 * fed
        train.get_or_create_global_step()
        with er.MonitoredTrainingSession() as session:
            metadata = tf.compat.v1.RunMetadata()
            options = tf.compat.v1.RunOptions(
                trace_level=tf.compat.v1.RunOptions.FULL_TRACE
            )
            assert session.run(doubled, {fed: 4.0}) == 8.0
            assert session.run(doubled, {fed: 5.0}, options, metadata) == 10.0
    assert metadata.step_stats.dev_stats
