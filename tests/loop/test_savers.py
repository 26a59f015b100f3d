"""Checkpoint hooks save at stock's steps, whatever a step adds to the global step."""

import pytest
import tensorflow as tf

import estimator_runtime as er

er.install()

_train = tf.compat.v1.train


def train(folder, make_step, steps, save_steps):
    """Train `steps` steps; give those of the checkpoints."""
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
    return [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]


@pytest.mark.parametrize(
    ("make_step", "expected"),
    [
        (lambda step: step.assign_add(1).op, [0, 7, 10]),
        (lambda step: step.assign_add(2).op, [0, 8, 16, 20]),
        (lambda step: step.assign(step + 3).op, [0, 9, 18, 27, 30]),
        (lambda step: [step.assign_add(1).op, step.assign_add(1).op], [0, 8, 16, 20]),
    ],
    ids=["adds one", "adds two", "assigns", "adds one twice"],
)
def test_a_checkpoint_is_of_the_first_step_that_is_far_enough(
    tmp_path, make_step, expected
):
    assert train(tmp_path, make_step, 10, save_steps=7) == expected


@pytest.mark.parametrize("resumed", [False, True])
def test_the_graph_beside_a_checkpoint_is_that_of_single_steps(
    resumed, training, tmp_path
):
    def nodes(steps_per_run):
        folder = tmp_path / str(steps_per_run)
        this = training.replace(config={"checkpoint_save_graph_def": True})
        for steps in (20, 40) if resumed else (20,):
            this.replace(train={"max_steps": steps}).ours(steps_per_run, folder)
        meta = tf.compat.v1.MetaGraphDef()
        meta.ParseFromString((folder / f"model.ckpt-{steps}.meta").read_bytes())
        return [node.name for node in meta.graph_def.node]

    assert nodes(7) == nodes(1)
