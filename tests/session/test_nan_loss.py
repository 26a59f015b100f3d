"""A loss that becomes NaN in one process, and what its traceback names."""

import re
import sys
import traceback
from pathlib import Path

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint.restore import nan_scan

er.install()
tf1 = tf.compat.v1
_PROGRAM = Path(__file__).parents[1] / "launch" / "programs" / "train.py"


@pytest.fixture
def train(tmp_path):
    """A function that trains until its loss is NaN and returns the error's text.

    What is saved at the step of the NaN has it too: of a step's hooks, the one that
    saves comes first.
    """

    def model_fn(features, labels, mode, params):
        weight = tf1.get_variable("weight", initializer=1.0)
        step = tf1.train.get_global_step()
        loss = weight * tf.where(step >= params["nan_at"], float("nan"), 1.0)
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, global_step=step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def train(nan_at, save_steps, folder=tmp_path):
        config = tf.estimator.RunConfig(
            str(folder), save_checkpoints_steps=save_steps, keep_checkpoint_max=2
        )
        params = {"nan_at": nan_at}
        with pytest.raises(tf.estimator.NanLossDuringTrainingError) as raised:
            tf.estimator.Estimator(model_fn, config=config, params=params).train(
                lambda: tf.data.Dataset.from_tensors(0.0).repeat(), max_steps=10
            )
        assert type(raised.value) is tf1.train.NanLossDuringTrainingError
        assert str(raised.value) == "NaN loss during training."
        return traceback.format_exception_only(raised.value)

    return train


_ERROR = (
    "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: "
    "NaN loss during training.\n"
)


_TO_TRY = (
    "To try: a lower learning rate, clipped gradients (tf.clip_by_global_norm), or a "
    "check of the input for NaN and of the loss for log(0) and divisions by 0"
)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_the_traceback_names_the_newest_checkpoint_without_nan(train, tmp_path):
    assert train(nan_at=2, save_steps=1) == [
        _ERROR,
        f"The loss is NaN at step 3. Newest good checkpoint: {tmp_path}/model.ckpt-2. "
        f"Newer, but with NaN in 'weight': {tmp_path}/model.ckpt-3; move "
        f"{tmp_path}/model.ckpt-3.* away, or training goes on from it. {_TO_TRY}\n",
    ]
    # What is to be done helps.
    for path in tmp_path.glob("model.ckpt-3.*"):
        path.unlink()
    assert train(nan_at=5, save_steps=100) == [
        _ERROR,
        f"The loss is NaN at step 6. Newest good checkpoint: {tmp_path}/model.ckpt-2. "
        f"{_TO_TRY}\n",
    ]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_the_traceback_says_so_where_each_checkpoint_has_nan(train, tmp_path):
    train(nan_at=1, save_steps=1)
    for path in tmp_path.glob("model.ckpt-1.*"):
        path.unlink()
    assert train(nan_at=1, save_steps=1) == [
        _ERROR,
        "The loss is NaN at step 3. Newest good checkpoint: not known here, as each "
        f"has NaN: {tmp_path}/model.ckpt-3 in 'weight'. {_TO_TRY}\n",
    ]


class WithoutNotes:
    """An error of Python 3.10, for all that is asked of it."""


def test_where_errors_have_no_notes_the_checkpoint_is_logged(tmp_path, caplog):
    nan_scan.add_note(WithoutNotes(), str(tmp_path), step=None)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", f"a loss was NaN: searching the checkpoints in {tmp_path} for NaN"),
        ("ERROR", f"The loss is NaN. No checkpoint was saved. {_TO_TRY}"),
    ]


def test_a_program_of_one_process_ends_with_the_newest_good_checkpoint(
    run_script, tmp_path
):
    options = ("--nan_at", "10", "--save_steps", "1")
    done = run_script(_PROGRAM, *options, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        _ERROR.rstrip("\n"),
        "The loss is NaN at step 11. Newest good checkpoint: "
        f"{tmp_path}/model/model.ckpt-10. Newer, but with NaN in 'weight': "
        f"{tmp_path}/model/model.ckpt-11; move {tmp_path}/model/model.ckpt-11.* away, "
        f"or training goes on from it. {_TO_TRY}",
    ]
    # No frames of libraries are above it.
    files = re.findall(r'^  File "(.+?)"', done.stderr, re.M)
    assert set(files) == {str(_PROGRAM)}
