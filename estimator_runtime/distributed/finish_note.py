"""How the other tasks learn that the training they belong to has ended.

The task that leads leaves a note in the model directory, which every task can read,
with or without a launcher. A note that was there before, of an earlier training in the
same directory, means nothing, and neither does a late one of the same program's.
"""

import json
import os
import uuid

import tensorflow as tf

from estimator_runtime.checkpoint import files
from estimator_runtime.reporting import ATTEMPT_VARIABLE, JOB_VARIABLE

_FILE = "training_finished.json"
_trainings = 0  # that this process has begun


def begin():
    """Take note that a training begins: a program may have several, one by one."""
    global _trainings
    _trainings += 1


def note(model_dir, step):
    """Let all tasks know that the training has ended, at this global step."""
    content = {
        "training": _trainings,
        "step": step,
        "id": uuid.uuid4().hex,
        "job": _job(),
    }
    path = os.path.join(tf.compat.as_str_any(model_dir), _FILE)
    # Whoever reads it finds all of it, or none.
    unfinished = f"{path}.{content['id']}"
    with tf.io.gfile.GFile(unfinished, "w") as file:
        file.write(json.dumps(content))
    tf.io.gfile.rename(unfinished, path, overwrite=True)


def saved_step(path):
    """Give the global step that a checkpoint has, which its name need not have.

    Workers may train between the reads of the step for the name and for the values.

    Args:
        path: Its path without suffix.
    """
    reader = tf.train.load_checkpoint(path)
    if reader.has_tensor(tf.compat.v1.GraphKeys.GLOBAL_STEP):
        return int(reader.get_tensor(tf.compat.v1.GraphKeys.GLOBAL_STEP))
    # Of a saver that gives other names, such as tf.train.Checkpoint.
    return files.step_of(path) or 0


def _job():
    """Give what all tasks that were started together share; None if nobody says.

    A leader that is started anew with all others may train again, so the note that it
    left before is of another training.
    """
    job = os.environ.get(JOB_VARIABLE)
    return f"{job}/{os.environ.get(ATTEMPT_VARIABLE, '0')}" if job else None


class Finish:
    """The end of the training that this task belongs to; made when the task starts."""

    def __init__(self, model_dir):
        self._path = os.path.join(tf.compat.as_str_any(model_dir), _FILE)
        self._job = _job()
        self._training = _trainings
        self._old = self._read().get("id")

    def step(self):
        """Give the global step at which the training ended; None if it goes on."""
        content = self._read()
        # The leader notes the end of a training when its session has closed, which may
        # take a minute: an evaluator may be in the next one by then.
        if content.get("training", 0) < self._training:
            return None
        # Of this job it counts even if it was there before: this task came late.
        is_known = self._job is not None and content.get("job") == self._job
        if content.get("id") != self._old or is_known:
            return content.get("step")
        return None

    def _read(self):
        try:
            with tf.io.gfile.GFile(self._path) as file:
                return json.loads(file.read())
        except (tf.errors.OpError, ValueError):  # none, or being replaced
            return {}
