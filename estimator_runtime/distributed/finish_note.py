"""The note that tells the other tasks that their training has ended.

The chief writes the note into the model directory, which every task can read,
with or without a launcher. A note that was there before counts for nothing, because it
belongs to an earlier training in the same directory. The same is true of a late note of
an earlier training of the same program.
"""

import json
import os
import uuid
from typing import Any

import tensorflow as tf

from estimator_runtime.config.paths import step_of
from estimator_runtime.reporting import ATTEMPT_VARIABLE, JOB_VARIABLE

_FILE = "training_finished.json"
_trainings = 0  # how many this process has begun


def begin() -> None:
    """Count a training that begins: a program may run several, one after another."""
    global _trainings
    _trainings += 1


def begun() -> int:
    """Return how many trainings this process has begun."""
    return _trainings


def note(model_dir: str | bytes | os.PathLike[str], step: int) -> None:
    """Write the note that the training has ended.

    Args:
        model_dir: The model directory.
        step: The global step at which it ended.
    """
    content = {
        "training": _trainings,
        "step": step,
        "id": uuid.uuid4().hex,
        "job": _job(),
    }
    path = os.path.join(tf.compat.as_str_any(model_dir), _FILE)
    # Renamed into place, so that a reader finds either the whole note or none.
    unfinished = f"{path}.{content['id']}"
    with tf.io.gfile.GFile(unfinished, "w") as file:
        file.write(json.dumps(content))
    tf.io.gfile.rename(unfinished, path, overwrite=True)


def saved_step(path: str) -> int:
    """Return the global step that a checkpoint holds, which may differ from its name.

    Workers may train on between the read of the step for the name and that of the
    values.

    Args:
        path: The path of the checkpoint, without suffix.
    """
    reader = tf.train.load_checkpoint(path)
    if reader.has_tensor(tf.compat.v1.GraphKeys.GLOBAL_STEP):
        return int(reader.get_tensor(tf.compat.v1.GraphKeys.GLOBAL_STEP))
    # From a saver that names its values differently, such as tf.train.Checkpoint.
    return step_of(path) or 0


def _job() -> str | None:
    """Return what identifies all tasks that were started together; None if unknown.

    A chief that is restarted together with all other tasks may train again. So the
    note that it left before belongs to another training.
    """
    job = os.environ.get(JOB_VARIABLE)
    return f"{job}/{os.environ.get(ATTEMPT_VARIABLE, '0')}" if job else None


class FinishNote:
    """The end of the training that this task belongs to.

    Make it when the task starts: a note that is there by then is an old one.

    Args:
        model_dir: The model directory.
    """

    def __init__(self, model_dir: str | bytes | os.PathLike[str]) -> None:
        self._path = os.path.join(tf.compat.as_str_any(model_dir), _FILE)
        self._job = _job()
        self._training = _trainings
        self._old = self._read().get("id")

    def step(self) -> int | None:
        """Return the global step at which the training ended; None if it goes on."""
        content = self._read()
        # The chief writes the note after its session has closed, which may take a
        # minute. An evaluator may be in the next training by then.
        if content.get("training", 0) < self._training:
            return None
        # A note of this job counts even if it was there before: this task came late.
        is_known = self._job is not None and content.get("job") == self._job
        if content.get("id") != self._old or is_known:
            return content.get("step")
        return None

    def _read(self) -> dict[str, Any]:
        try:
            # At a named pipe, TensorFlow would wait for a writer.
            if os.path.exists(self._path) and not os.path.isfile(self._path):
                return {}
            with tf.io.gfile.GFile(self._path) as file:
                content = json.loads(file.read())
        except (tf.errors.OpError, ValueError):  # no note, or it is being replaced
            return {}
        return content if isinstance(content, dict) else {}
