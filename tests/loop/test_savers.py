"""Checkpoint hooks save at stock's steps, without a read of their own at every step."""

import pytest
import tensorflow as tf

import estimator_runtime as er

er.install()

_train = tf.compat.v1.train


def train(folder, make_step, steps, save_steps):
    """Train `steps` steps; give the hook, and the steps of its checkpoints."""
    with tf.Graph().as_default():
        saver = _train.CheckpointSaverHook(str(folder), save_steps=save_steps)
        step = make_step(_train.get_or_create_global_step())
        tf.compat.v1.add_to_collection(
            tf.compat.v1.GraphKeys.SAVERS, _train.Saver(max_to_keep=100)
        )
        with er.MonitoredTrainingSession(hooks=[saver]) as session:
            for _ in range(steps):
                session.run(step)
    state = _train.get_checkpoint_state(str(folder))
    saved = [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]
    return saver, saved


def test_a_hook_is_told_that_each_step_adds_one(tmp_path):
    saver, saved = train(tmp_path, lambda step: step.assign_add(1).op, 25, save_steps=7)
    assert (saver._steps_per_run, saved) == (1, [0, 7, 14, 21, 25])


@pytest.mark.parametrize(
    ("make_step", "expected"),
    [
        (lambda step: step.assign_add(2).op, [0, 8, 16, 20]),
        (lambda step: step.assign(step + 3).op, [0, 9, 18, 27, 30]),
        (lambda step: [step.assign_add(1).op, step.assign_add(1).op], [0, 8, 16, 20]),
    ],
    ids=["adds two", "assigns", "adds one twice"],
)
def test_a_hook_goes_on_reading_where_a_step_may_do_more(tmp_path, make_step, expected):
    saver, saved = train(tmp_path, make_step, 10, save_steps=7)
    assert (saver._steps_per_run, saved) == (1_000_000, expected)


def test_a_hook_that_knows_better_is_left_alone(tmp_path):
    class Own(_train.CheckpointSaverHook):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)

    with tf.Graph().as_default():
        own = Own(str(tmp_path / "a"), save_steps=2)
        set_by_hand = _train.CheckpointSaverHook(str(tmp_path / "b"), save_steps=2)
        set_by_hand._set_steps_per_run(5)
        step = _train.get_or_create_global_step().assign_add(1).op
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVERS, _train.Saver())
        with er.MonitoredTrainingSession(hooks=[own, set_by_hand]) as session:
            session.run(step)
    assert (own._steps_per_run, set_by_hand._steps_per_run) == (1_000_000, 5)
