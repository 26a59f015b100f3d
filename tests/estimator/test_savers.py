"""A hook that looks for the checkpoint just saved finds it, as with TensorFlow's hook.

The saves are of some megabytes, so that each is still being written when the hook looks.
"""

import os
import threading

import pytest
import tensorflow as tf
from tensorflow.python.training import saver

import estimator_runtime as er
from estimator_runtime.checkpoint.store import series

er.install()

train = tf.compat.v1.train
EVERY = 3


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable(
        "weight", [1 << 20], initializer=tf.zeros_initializer
    )
    loss = tf.reduce_sum(weight[:1] * features)
    step = train.get_global_step()
    train_op = train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        predictions={"step": tf.identity(step)[None]},
    )


def input_fn():
    return tf.data.Dataset.from_tensors([1.0]).repeat()


def one_input_fn():
    return tf.data.Dataset.from_tensors([1.0])


def number(prefix):
    return int(prefix.rpartition("-")[2])


# What a hook may ask, of (estimator, the prefix of the step just saved), for its step.
ASKED = {
    "Estimator.latest_checkpoint": lambda e, _: number(e.latest_checkpoint()),
    "Estimator.evaluate": lambda e, _: e.evaluate(input_fn, steps=1)["global_step"],
    "Estimator.predict": lambda e, _: next(e.predict(one_input_fn))["step"],
    "Estimator.get_variable_value": lambda e, _: e.get_variable_value("global_step"),
    "latest_checkpoint": lambda e, _: number(tf.train.latest_checkpoint(e.model_dir)),
    "get_checkpoint_state": lambda e, _: number(
        tf.train.get_checkpoint_state(e.model_dir).model_checkpoint_path
    ),
    "checkpoint_exists": lambda _, prefix: (
        train.checkpoint_exists(prefix) and number(prefix)
    ),
    "load_variable": lambda _, prefix: tf.train.load_variable(prefix, "global_step"),
    "list_variables": lambda _, prefix: (
        tf.train.list_variables(prefix) and number(prefix)
    ),
}


class Asking(tf.estimator.SessionRunHook):
    """Asks after each step that is saved."""

    def __init__(self, ask):
        self._ask = ask
        self.answers = []

    def before_run(self, run_context):
        return train.SessionRunArgs(train.get_global_step())

    def after_run(self, run_context, run_values):
        step = int(run_context.session.run(train.get_global_step()))
        if step % EVERY == 0:
            self.answers.append((step, int(self._ask(step))))


@pytest.mark.parametrize("asked", ASKED)
def test_a_hook_finds_the_checkpoint_of_its_step(asked, tmp_path):
    config = er.RunConfig(str(tmp_path), save_checkpoints_steps=EVERY)
    estimator = tf.estimator.Estimator(model_fn, config=config)

    def ask(step):
        return ASKED[asked](estimator, os.path.join(tmp_path, f"model.ckpt-{step}"))

    hook = Asking(ask)
    estimator.train(input_fn, max_steps=3 * EVERY, hooks=[hook])
    assert hook.answers == [(step, step) for step in (3, 6, 9)]


class Pruning(tf.estimator.SessionRunHook):
    """Changes the weights after each step that is saved, and saves them itself."""

    def __init__(self, path):
        self._path = path

    def begin(self):
        [weight] = tf.compat.v1.trainable_variables("weight")
        self._prune = weight.assign(tf.fill(weight.shape, -1.0))
        self._saver = train.Saver()

    def after_run(self, run_context, run_values):
        step = int(run_context.session.run(train.get_global_step()))
        if step % EVERY == 0:
            run_context.session.run(self._prune)
            self._saver.save(run_context.session, self._path, global_step=step)


@pytest.mark.parametrize("name", ["model.ckpt", "pruned.ckpt"])
def test_what_a_hook_saves_of_the_same_step_stays(name, tmp_path, around_writes):
    never = threading.Event()
    around_writes(before=lambda _: never.wait(0.3))
    config = er.RunConfig(str(tmp_path), save_checkpoints_steps=EVERY)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    hooks = [Pruning(str(tmp_path / name))]
    estimator.train(input_fn, max_steps=2 * EVERY, hooks=hooks)
    newest = tf.train.latest_checkpoint(str(tmp_path))
    assert newest == str(tmp_path / f"{name}-{2 * EVERY}")
    assert set(tf.train.load_variable(newest, "weight")) == {-1.0}


def test_a_hook_whose_saver_saves_by_itself_may_save_beside_another(
    tmp_path, monkeypatch
):
    """The writer needs the turn, and comes for it when the training has it."""
    add, training_saves = series.Series.add, threading.Event()
    add_saved = series.Series.add_saved

    def late(*args):
        training_saves.wait(1)
        add(*args)

    def noting(self, step, save):
        def save_and_note():
            training_saves.set()
            save()
            training_saves.clear()

        return add_saved(self, step, save_and_note)

    monkeypatch.setattr(series.Series, "add", late)
    monkeypatch.setattr(series.Series, "add_saved", noting)

    class Builder(saver.BulkSaverBuilder):
        pass

    folder = str(tmp_path)
    with tf.Graph().as_default():
        step = train.get_or_create_global_step().assign_add(1).op
        hook = train.CheckpointSaverHook(
            folder,
            save_steps=1,
            saver=train.Saver(builder=Builder()),
            checkpoint_basename="other.ckpt",
        )
        with er.MonitoredTrainingSession(
            checkpoint_dir=folder, save_checkpoint_steps=1, hooks=[hook]
        ) as session:
            for _ in range(2):
                session.run(step)
    for name in ("model", "other"):
        assert (tmp_path / f"{name}.ckpt-2.index").exists()
