"""An evaluator whose folder shows the end of a training before its last checkpoint."""

import os

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime import executor, finish

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
            finish.note(self._model_dir, 2)
        return True


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    """Give a function that evaluates; it gives what was exported, and how often."""
    monkeypatch.setattr(executor, "_POLL_SECS", 0.001)
    finish.begin()
    config = er.RunConfig(str(tmp_path), save_checkpoints_steps=1)
    tf.estimator.Estimator(model_fn, config=config).train(input_fn)

    def evaluate(late_until):
        Late.asked, Late.late_until = 0, late_until
        exporter = Exporter()
        executor._TrainingExecutor(
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
    evaluate, monkeypatch, caplog, tmp_path
):
    monkeypatch.setattr(executor, "_LATE_SECS", 0.01)
    assert evaluate(late_until=10**9) == [
        ("model.ckpt-1", False),
        ("model.ckpt-1", False),
    ]
    assert (
        f"the training has ended at step 2, but '{tmp_path}' shows no checkpoint of it "
        "after 0.01 s; the newest there, of step 1, is taken for the last"
    ) in caplog.messages
