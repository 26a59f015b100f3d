"""How an evaluator and a ps wait for the trainers, and for their last checkpoint."""

import os
import signal

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime import reporting
from estimator_runtime.distributed import finish_note
from estimator_runtime.distributed.ps import ParameterServer
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.reporting import StepWatch

er.install()

from tensorflow_estimator.python.estimator import training  # noqa: E402

tf1 = tf.compat.v1


def model_fn(features, labels, mode):
    weight = tf1.get_variable("weight", initializer=0.0)
    loss = tf.square(weight - features)
    optimizer = tf1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(loss, tf1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(1.0).repeat(2)


class Late(tf.estimator.Estimator):
    """Sees the checkpoint of step 1, until it has asked for the newest often enough."""

    asked, late_until = 0, 0

    def latest_checkpoint(self):
        self.asked += 1
        if self.asked > self.late_until:
            return super().latest_checkpoint()
        return os.path.join(self.model_dir, "model.ckpt-1")


class Clock:
    """A clock that goes on only while somebody waits."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self):
        return self.now

    def sleep(self, secs):
        self.now += secs
        self.slept.append(secs)


def executor_of(given):
    """Return the class that runs the task of this process, by another clock."""

    class Executor(training._TrainingExecutor):
        clock = given

    return Executor


class Exporter(tf.estimator.Exporter):
    name = "exporter"

    def __init__(self):
        self.exported = []

    def export(
        self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export
    ):
        self.exported.append((os.path.basename(checkpoint_path), is_the_final_export))


class EndsAfterTheFirst(training._ContinuousEvalListener):
    """The training ends, at step 2, when one evaluation is done."""

    def __init__(self, model_dir):
        self._model_dir, self._count = model_dir, 0

    def after_eval(self, result):
        self._count += 1
        if self._count == 1:
            finish_note.note(self._model_dir, 2)
        return True


@pytest.fixture
def evaluate(tmp_path):
    """Return a function that evaluates; it gives what was exported, and how often."""
    finish_note.begin()
    config = er.RunConfig(str(tmp_path), save_checkpoints_steps=1)
    tf.estimator.Estimator(model_fn, config=config).train(input_fn)

    def evaluate(late_until):
        Late.asked, Late.late_until = 0, late_until
        exporter = Exporter()
        executor_of(Clock())(
            Late(model_fn, config=config),
            tf.estimator.TrainSpec(input_fn),
            tf.estimator.EvalSpec(
                input_fn, exporters=exporter, start_delay_secs=0, throttle_secs=0
            ),
            continuous_eval_listener=EndsAfterTheFirst(str(tmp_path)),
        )._start_continuous_evaluation()
        return exporter.exported

    return evaluate


def test_the_last_checkpoint_is_evaluated_also_where_the_folder_shows_it_late(evaluate):
    assert evaluate(late_until=5) == [("model.ckpt-1", False), ("model.ckpt-2", True)]


def test_an_evaluator_does_not_wait_for_ever_for_the_last_checkpoint(
    evaluate, caplog, tmp_path
):
    assert evaluate(late_until=10**9) == [
        ("model.ckpt-1", False),
        ("model.ckpt-1", False),
    ]
    assert (
        f"the training has ended at step 2, but '{tmp_path}' has no checkpoint of that "
        "step after 60 s; evaluating the newest one, of step 1, as the last"
    ) in caplog.messages


@pytest.fixture
def evaluate_alone(tmp_path, set_tf_config, free_addresses):
    """Return a function that evaluates step 2 of a training in which nobody is left."""
    finish_note.begin()
    tf.estimator.Estimator(model_fn, str(tmp_path)).train(input_fn)
    chief, worker = free_addresses(2)
    set_tf_config(
        {
            "cluster": {"chief": [chief], "worker": [worker]},
            "task": {"type": "evaluator", "index": 0},
        }
    )
    config = er.RunConfig(str(tmp_path), session_creation_timeout_secs=0.01)

    def evaluate_alone(max_steps, exporter, listener=None):
        executor_of(Clock())(
            tf.estimator.Estimator(model_fn, config=config),
            tf.estimator.TrainSpec(input_fn, max_steps),
            # It gives up long before it would have begun.
            tf.estimator.EvalSpec(
                input_fn, exporters=exporter, start_delay_secs=600, throttle_secs=0
            ),
            continuous_eval_listener=listener,
        )._start_continuous_evaluation()

    return evaluate_alone


@pytest.mark.timeout(120)
def test_an_evaluator_that_comes_after_the_end_evaluates_the_last_checkpoint(
    evaluate_alone,
):
    exporter = Exporter()
    evaluate_alone(max_steps=2, exporter=exporter)
    assert exporter.exported == [("model.ckpt-2", True)]


@pytest.mark.timeout(120)
def test_an_evaluator_gives_up_after_it_has_evaluated_the_newest_checkpoint(
    evaluate_alone,
):
    exporter = Exporter()
    with pytest.raises(
        PeerTimeoutError, match="this evaluator waits for them; giving up"
    ):
        evaluate_alone(max_steps=3, exporter=exporter)
    assert exporter.exported == [("model.ckpt-2", False)]


class EndsAfterTheSecond(training._ContinuousEvalListener):
    """Lets the evaluator look for checkpoints twice."""

    evaluations = 0

    def after_eval(self, result):
        self.evaluations += 1
        return self.evaluations < 2


@pytest.fixture
def launcher(monkeypatch):
    """A launcher that listens to this process."""
    reader, writer = os.pipe()
    reporter = reporting.Reporter(f"/proc/self/fd/{writer}", StepWatch(0))
    monkeypatch.setattr(reporting, "_reporter", reporter)
    yield
    reporter.close()
    os.close(reader)
    os.close(writer)


class Told(ParameterServer):
    """Is told to end when it has been waited for three times, which takes no time."""

    waits = 0

    def wait(self, secs):
        self.waits += 1
        assert self.waits <= 3
        if self.waits == 3:
            signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def serve_after_note(tmp_path, free_addresses):
    """Return a function that serves after a training; it gives how often it waited."""

    def serve():
        finish_note.begin()
        chief, ps = free_addresses(2)
        server = Told(str(tmp_path), {"chief": [chief], "ps": [ps]}, 60.0)
        finish_note.note(str(tmp_path), 2)
        try:
            server.serve()
        finally:
            server.restore()
        return server.waits

    return serve


def test_a_ps_ends_with_its_training_where_no_launcher_says_when(serve_after_note):
    assert serve_after_note() == 0


def test_a_ps_of_a_launcher_is_there_for_all_trainings_of_a_program(
    serve_after_note, launcher
):
    """Nobody listens while the chief of the second training is started again."""
    assert serve_after_note() == 3


@pytest.mark.timeout(120)
def test_an_evaluator_of_a_launcher_does_not_give_up_while_no_trainer_is_there(
    evaluate_alone, launcher, caplog
):
    """They may wait for their restart, and the launcher knows of it."""
    listener = EndsAfterTheSecond()
    evaluate_alone(max_steps=3, exporter=Exporter(), listener=listener)
    assert listener.evaluations == 2
    assert "no answer from" not in caplog.text


@pytest.mark.parametrize(
    ("variable", "delays"), [("", [10]), ("0", []), ("0.02", [0.04])]
)
def test_a_worker_starts_after_the_delay_that_is_set(
    variable, delays, monkeypatch, set_tf_config, tmp_path
):
    slept = []
    monkeypatch.setattr(training.time, "sleep", slept.append)
    if variable:
        monkeypatch.setenv("ESTIMATOR_RUNTIME_START_DELAY_SECS", variable)
    # In this environment a task starts no server.
    set_tf_config(
        {
            "cluster": {"chief": ["h:1"], "worker": ["h:2", "h:3"]},
            "task": {"type": "worker", "index": 1},
            "environment": "google",
        }
    )
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.train = lambda **arguments: slept.append("then it trains")
    specs = tf.estimator.TrainSpec(input_fn), tf.estimator.EvalSpec(input_fn)
    training._TrainingExecutor(estimator, *specs).run_worker()
    assert slept == [*delays, "then it trains"]
