"""Two trainings in one model directory are told of it; nobody else is."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from estimator_runtime import MonitoredTrainingSession
from estimator_runtime.checkpoint.store.locks import ModelDirLock

_HOLD = """
import sys
from estimator_runtime.checkpoint.store.locks import ModelDirLock
claim = ModelDirLock(sys.argv[1])
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Return another process, which trains in the folder of the test."""
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


@pytest.fixture
def train(tmp_path, caplog):
    """Return a function that trains a step, and tells how often it was warned."""

    def train(*hooks, fails=False):
        caplog.clear()
        with tf.Graph().as_default():
            step = tf.compat.v1.train.get_or_create_global_step()
            one_more = tf.compat.v1.assign_add(step, 1)
            with MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=[hook() for hook in hooks]
            ) as session:
                session.run(one_more)
                if fails:
                    raise RuntimeError("of the program")
        return sum("another process trains in" in each for each in caplog.messages)

    return train


def _hold(folder):
    """Return what another process is told that trains in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", _HOLD, str(folder)],
        input="",
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "holds\n"
    return done.stderr


def test_a_training_beside_another_is_warned_once(other, train):
    assert train() == 1


def test_a_training_after_one_that_was_killed_is_not(other, train):
    other.kill()
    other.wait(30)
    assert train() == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_training_that_has_ended_holds_nothing(train, fails, tmp_path):
    if fails:
        with pytest.raises(RuntimeError, match="of the program"):
            train(fails=True)
    else:
        assert train() == 0
    assert _hold(tmp_path) == ""


def test_a_forked_child_does_not_unlock_what_its_parent_has(tmp_path):
    claim = ModelDirLock(str(tmp_path))
    if (child := os.fork()) == 0:
        claim.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert "another process trains in" in _hold(tmp_path)


def _saver_hook(folder):
    return lambda: tf.compat.v1.train.CheckpointSaverHook(str(folder), save_steps=1)


def test_two_hooks_that_save_to_one_folder_are_one_training(train, tmp_path):
    assert train(_saver_hook(tmp_path)) == 0
