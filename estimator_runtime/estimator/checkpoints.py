"""Checks of an Estimator's checkpoints, and leases on those that it reads.

Before it makes a session, `Estimator.train` reads the global step of the newest
checkpoint, to find out whether `max_steps` is reached. A checkpoint that it cannot read
counts as step 0, and it trains on. So the task that saves checkpoints verifies them
first.

The evaluation of a large model may take so long that `keep_checkpoint_max` newer
checkpoints are written, after which a Saver deletes the evaluated one. The exporters
then read it once more. So it is held until they are done.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.save import writer
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.tensor_bundle import checksums
from estimator_runtime.config import paths
from estimator_runtime.config.paths import is_local
from estimator_runtime.tf_internals.sessions import graph_mode

_logger = logging.getLogger(__name__)


def hold(
    estimator: Any, path: Any, leases: contextlib.ExitStack | None = None
) -> str | None:
    """Hold the checkpoint that `evaluate` or `predict` reads, and return its path.

    Args:
        estimator: The Estimator.
        path: The checkpoint that the caller names; None for the newest one.
        leases: Releases the checkpoint when it is closed. By default, that is the end
            of the enclosing `locks.together`.

    Returns:
        The path of the checkpoint, or None if there is none yet.

    Raises:
        CheckpointError: If TensorFlow finds no checkpoint beside one that can be read.
            It would evaluate the initial values of the model.
    """
    folder = os.fsdecode(estimator.model_dir)

    def latest() -> str | None:
        # Only exports use the `latest_checkpoint` of a subclass.
        with graph_mode():
            found = tf.train.latest_checkpoint(folder)
        if found is None and is_local(folder):
            recovery.refuse_to_start_over(folder, "the model would be untrained")
        return found

    return _hold(path, latest, leases)


def hold_for_export(estimator: Any, path: Any) -> str | None:
    """Hold the checkpoint that an export reads, as `hold` does, and return its path."""
    return _hold(path, estimator.latest_checkpoint, None)


def _hold(
    path: Any, latest: Callable[[], str | None], leases: contextlib.ExitStack | None
) -> str | None:
    if not path:
        return locks.hold_newest(latest, lambda prefix: locks.hold(prefix, leases))
    writer.wait_for_own()
    locks.hold(os.fsdecode(path), leases)
    return path


def check_model_dir(estimator: Any) -> None:
    """Raise a ConfigError if the chief could not save in its model directory.

    TensorFlow would only notice when the model has been built.
    """
    folder, config = os.fsdecode(estimator.model_dir), estimator.config
    saves = config.save_checkpoints_secs or config.save_checkpoints_steps
    if saves:  # a folder to which nothing is saved need not be found again
        paths.check_model_dir("model_dir", folder)
    writes = config.is_chief and (saves or config.save_summary_steps)
    # A training that is complete writes nothing, so its folder may be read-only.
    if writes and not os.path.isdir(folder):
        paths.check_writable("model_dir", folder)


def verify_newest(estimator: Any, max_steps: int | None) -> None:
    """Make sure that the chief's training continues from a checkpoint that is sound.

    Args:
        estimator: The Estimator.
        max_steps: The step at which the training is complete, or None.
    """
    folder = os.fsdecode(estimator.model_dir)
    if not estimator.config.is_chief or not is_local(folder):
        return
    with locks.write_lock():
        newest = recovery.recover(folder)
    if newest is None or not max_steps or (newest.step or 0) < max_steps:
        return
    # No session restores the checkpoint of a complete training, so nothing else would
    # detect damaged values.
    problem = checksums.problem(newest.prefix)
    if problem is not None:
        recovery.set_aside_latest(folder, problem)
        return
    _logger.warning(
        "nothing to train: %s is at step %s, and max_steps is %s; to train on, give "
        "more steps, or to start over, another model_dir",
        folder,
        newest.step,
        max_steps,
    )
