"""The best checkpoints of a training are kept beside the newest."""

import math
import os

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.best import BestCheckpoints, Criterion
from estimator_runtime.checkpoint.checkpoint import Checkpoint, checkpoints_in
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.store.state_file import read_state
from estimator_runtime.config.paths import step_of
from estimator_runtime.errors import CheckpointError, ConfigError, ConfigTypeError

er.install()

tf1 = tf.compat.v1
train = tf1.train


def kept(folder):
    """Return (step, value of `weight`) of the checkpoints in `best`, best first."""
    paths = read_state(folder / "best").paths
    on_disk = {each.prefix for each in checkpoints_in(folder / "best")}
    assert on_disk == set(paths)
    assert read_state(folder / "best").latest == paths[-1]
    return [
        (step_of(path), float(tf.train.load_variable(path, "weight")[0]))
        for path in reversed(paths)
    ]


def offer(folder, values, keep=2, metric="loss", mode="min"):
    best = BestCheckpoints(str(folder), Criterion(keep=keep, metric=metric, mode=mode))
    return [
        best.offer(str(folder / f"model.ckpt-{step}"), metrics)
        for step, metrics in values.items()
    ]


def test_those_with_the_least_loss_are_kept_the_best_first(ckpt):
    losses = {10: {"loss": 0.5}, 20: {"loss": 0.1}, 30: {"loss": 0.3}}
    assert offer(ckpt, losses) == [True, True, True]
    assert kept(ckpt) == [(20, 20.0), (30, 30.0)]


def test_more_is_better_where_that_is_said(ckpt):
    values = {10: {"auc": 0.9}, 20: {"auc": 0.7}, 30: {"auc": 0.8}}
    assert offer(ckpt, values, metric="auc", mode="max") == [True, True, True]
    assert kept(ckpt) == [(10, 10.0), (30, 30.0)]


def test_of_equal_ones_the_earlier_is_the_better(ckpt):
    offer(ckpt, {20: {"loss": 1.0}, 10: {"loss": 1.0}, 30: {"loss": 1.0}}, keep=2)
    assert kept(ckpt) == [(10, 10.0), (20, 20.0)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_the_best(ckpt, value):
    assert offer(ckpt, {10: {"loss": value}}) == [False]
    assert offer(ckpt, {20: {"loss": 5.0}, 30: {"loss": value}}) == [True, False]
    assert kept(ckpt) == [(20, 20.0)]


def test_it_goes_on_after_a_restart_and_stays_when_training_deletes_its_own(ckpt):
    offer(ckpt, {10: {"loss": 0.1}, 20: {"loss": 0.2}})
    for step in (10, 20):
        Checkpoint.at(str(ckpt / f"model.ckpt-{step}")).delete()
    assert kept(ckpt) == [(10, 10.0), (20, 20.0)]
    offer(ckpt, {30: {"loss": 0.15}})
    assert kept(ckpt) == [(10, 10.0), (30, 30.0)]


def test_files_are_links_and_cost_no_space(ckpt):
    offer(ckpt, {10: {"loss": 0.1}})
    for path in Checkpoint.at(str(ckpt / "best" / "model.ckpt-10")).files:
        assert os.path.samefile(path, ckpt / os.path.basename(path))


@pytest.mark.parametrize("content", ["[1]", '{"model.ckpt-10": 3}', "{"])
def test_notes_of_another_form_are_made_again(ckpt, caplog, content):
    (ckpt / "best").mkdir()
    (ckpt / "best" / "metrics.json").write_text(content)
    assert offer(ckpt, {20: {"loss": 0.2}}) == [True]
    assert "metrics.json cannot be read" in caplog.text
    assert kept(ckpt) == [(20, 20.0)]


def test_what_no_evaluation_tells_of_stays(ckpt):
    offer(ckpt, {10: {"loss": 0.1}})
    (ckpt / "best" / "metrics.json").unlink()
    criterion = Criterion(keep=1, metric="loss", mode="min")
    best = BestCheckpoints(str(ckpt), criterion)
    for step, loss in ((20, 0.3), (30, 0.2)):
        best.offer(str(ckpt / f"model.ckpt-{step}"), {"loss": loss})
    on_disk = [each.step for each in checkpoints_in(ckpt / "best")]
    assert on_disk == [10, 30]
    assert read_state(ckpt / "best").paths == (f"{ckpt}/best/model.ckpt-30",)


def test_fewer_are_kept_as_soon_as_fewer_are_wanted(ckpt):
    offer(ckpt, {10: {"loss": 0.1}, 20: {"loss": 0.2}})
    assert offer(ckpt, {30: {"loss": 0.3}}, keep=1) == [False]
    assert kept(ckpt) == [(10, 10.0)]


def test_what_is_read_is_deleted_when_its_reader_has_left(ckpt):
    offer(ckpt, {10: {"loss": 0.3}}, keep=1)
    read = str(ckpt / "best" / "model.ckpt-10")
    with locks.reading(read):
        offer(ckpt, {20: {"loss": 0.2}}, keep=1)
        assert [each.step for each in checkpoints_in(ckpt / "best")] == [10, 20]
        assert read_state(ckpt / "best").paths == (str(ckpt / "best/model.ckpt-20"),)
    offer(ckpt, {30: {"loss": 0.9}}, keep=1)
    assert kept(ckpt) == [(20, 20.0)]


def test_what_was_deleted_while_it_was_evaluated_is_left_out(ckpt, caplog):
    offer(ckpt, {10: {"loss": 0.3}})
    Checkpoint.at(str(ckpt / "model.ckpt-20")).delete()
    assert offer(ckpt, {20: {"loss": 0.1}}) == [False]
    assert "was deleted while it was evaluated" in caplog.text
    assert kept(ckpt) == [(10, 10.0)]


def test_a_folder_that_cannot_be_made_is_one_line(ckpt):
    (ckpt / "best").write_text("a file")
    with pytest.raises(CheckpointError) as raised:
        offer(ckpt, {10: {"loss": 0.3}})
    assert str(raised.value) == (
        f"{str(ckpt / 'model.ckpt-10')!r} cannot be kept in {str(ckpt / 'best')!r}: "
        "File exists; make room, grant the permission, or leave keep_best out"
    )


def test_a_metric_that_there_is_not_is_one_line(ckpt):
    with pytest.raises(ConfigError) as raised:
        offer(ckpt, {10: {"loss": 1.0, "auc": 0.5}}, metric="AUC", mode="max")
    assert str(raised.value) == (
        "RunConfig: best_metric is 'AUC', but the evaluation has 'auc', 'loss'; give "
        "one of these"
    )
    assert not (ckpt / "best").exists()


def test_remote_storage_is_refused_before_anything_is_trained():
    from tensorflow_estimator.python.estimator import training

    config = tf.estimator.RunConfig(
        "gs://bucket/model", keep_best=1, best_metric="loss"
    )
    spec = tf.estimator.EvalSpec(lambda: None)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    with pytest.raises(ConfigError, match="'gs://bucket/model' is not a local folder"):
        training._TrainingExecutor._Evaluator(estimator, spec, None)


LOSSES = [5.0, 3.0, 1.0, 2.0, 4.0, 6.0]  # of the checkpoint of each second step


def model_fn(features, labels, mode):
    """Return each evaluated step the loss that is written down for it."""
    del labels
    step = train.get_or_create_global_step()
    weight = tf1.get_variable("weight", [1], initializer=tf1.zeros_initializer())
    loss = tf.gather(tf.constant(LOSSES), tf.cast(step, tf.int32) // 2)
    loss += 0 * tf.reduce_sum(features) + 0 * tf.reduce_sum(weight)
    counted = step.assign_add(1)
    with tf.control_dependencies([counted]):
        train_op = weight.assign([tf.cast(counted, tf.float32)])
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def train_and_evaluate(folder, max_steps, **settings):
    config = tf.estimator.RunConfig(
        str(folder), save_checkpoints_steps=2, keep_checkpoint_max=1, **settings
    )

    def input_fn():
        return tf.data.Dataset.from_tensors(np.float32([1.0])).repeat()

    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model_fn, config=config),
        tf.estimator.TrainSpec(input_fn, max_steps=max_steps),
        tf.estimator.EvalSpec(input_fn, steps=1, throttle_secs=0),
    )


def test_train_and_evaluate_keeps_the_best_also_over_a_restart(tmp_path):
    settings = {"keep_best": 2, "best_metric": "loss"}
    train_and_evaluate(tmp_path, 6, **settings)
    assert kept(tmp_path) == [(4, 4.0), (6, 6.0)]
    train_and_evaluate(tmp_path, 10, **settings)
    assert kept(tmp_path) == [(4, 4.0), (6, 6.0)]
    assert [each.step for each in checkpoints_in(tmp_path)] == [10]


def test_a_metric_that_the_environment_names_needs_a_number_to_keep(monkeypatch):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_BEST_METRIC", "loss")
    with pytest.raises(ConfigError, match="best_metric is 'loss', but keep_best is"):
        tf.estimator.RunConfig()
    assert tf.estimator.RunConfig(keep_best=2).best_metric == "loss"
    assert tf.estimator.RunConfig(keep_best=0).best_metric == "loss"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"keep_best": 2},
            ConfigError,
            "keep_best is 2, but best_metric is not given; name the metric of the "
            "evaluation that says which checkpoints are the best, such as 'loss', in "
            "RunConfig or with --best-metric",
        ),
        (
            {"keep_best": 2, "best_metric": "auc"},
            ConfigError,
            "best_metric is 'auc', but best_mode (--best-mode) is not given; give 'max' if more of "
            "it is better, 'min' if less is",
        ),
        (
            {"keep_best": 2, "best_metric": "auc", "best_mode": "more"},
            ConfigError,
            "RunConfig: best_mode is 'more'; give 'min' if less of the metric is "
            "better, 'max' if more is",
        ),
        (
            {"best_metric": 3},
            ConfigTypeError,
            "RunConfig: best_metric is 3 (int); give the name of a metric of the "
            "evaluation, such as 'loss'",
        ),
    ],
)
def test_bad_settings_are_one_line(settings, error, message):
    with pytest.raises(error) as raised:
        tf.estimator.RunConfig(**settings)
    assert str(raised.value) == message
    with pytest.raises(error) as raised:
        tf.estimator.RunConfig().replace(**settings)
    assert str(raised.value) == message
