"""The evaluations of a local `train_and_evaluate`."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.signals import session_close

er.install()
tf1 = tf.compat.v1


def input_fn():
    x = np.ones([8, 1], np.float32)
    return tf.data.Dataset.from_tensor_slices((x, x)).repeat().batch(4)


def model_fn(features, labels, mode):
    predictions = tf1.layers.dense(features, 1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean((predictions - labels) ** 2)
    optimizer = tf1.train.GradientDescentOptimizer(0.01)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, tf1.train.get_global_step())
    )


class Steps(tf.estimator.SessionRunHook):
    """Allows checkpoints to be written after the step `until`."""

    def __init__(self, until, may_write):
        self._until, self._may_write = until, may_write

    def begin(self):
        self._step = tf1.train.get_global_step()

    def before_run(self, run_context):
        return tf1.train.SessionRunArgs(self._step)

    def after_run(self, run_context, run_values):
        if run_values.results > self._until:
            self._may_write.set()


@pytest.mark.parametrize(
    ("throttle_secs", "evaluated"), [(600, [2, 6]), (0, [2, 4, 6])]
)
def test_training_waits_only_for_the_checkpoints_that_are_evaluated(
    tmp_path, around_writes, throttle_secs, evaluated
):
    may_write, late = threading.Event(), []

    def wait_until_trained(_):
        # Saves of steps 0, 2, 4 and 6; the third is held back until step 5.
        late.append(len(late) != 2 or may_write.wait(2))

    around_writes(before=wait_until_trained)
    config = er.RunConfig(
        model_dir=str(tmp_path),
        save_checkpoints_steps=2,
        log_step_count_steps=None,
        save_summary_steps=None,
    )
    estimator = tf.estimator.Estimator(model_fn, config=config)
    seen = []

    class Exporter(tf.estimator.Exporter):
        name = "seen"

        def export(self, *, eval_result, **others):
            seen.append(int(eval_result["global_step"]))

    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, 6, hooks=[Steps(4, may_write)]),
        tf.estimator.EvalSpec(
            input_fn, steps=1, exporters=Exporter(), throttle_secs=throttle_secs
        ),
    )
    assert seen == evaluated
    assert late == [True, True, throttle_secs == 600, True]


def test_evaluate_and_predict_do_not_wait_for_a_session_that_closes_late(
    tmp_path, monkeypatch
):
    never, close = threading.Event(), tf1.Session.close

    def close_late(session):
        assert never.wait(60)
        close(session)

    estimator = tf.estimator.Estimator(model_fn, model_dir=str(tmp_path))
    estimator.train(input_fn, steps=1)
    monkeypatch.setattr(tf1.Session, "close", close_late)
    metrics = estimator.evaluate(input_fn, steps=2)
    rows = list(estimator.predict(lambda: input_fn().take(2)))
    assert session_close.are_left()
    never.set()
    assert not session_close.are_left(wait_secs=60)
    assert metrics["global_step"] == 1
    assert len(rows) == 8
