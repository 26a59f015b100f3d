"""A barrier: the tasks of a multi-worker strategy restore what the chief has checked.

Each task restores by itself, with TensorFlow's own session creator. If a value is
damaged, all tasks fail, and they fail again after every restart. So the chief, which
may set a checkpoint aside, first reads all of its values, while the other tasks wait.
"""

import itertools
import logging
import os
import time
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.tensor_bundle import checksums
from estimator_runtime.distributed import coordination
from estimator_runtime.errors import PeerTimeoutError

_logger = logging.getLogger(__name__)
# To read all of a checkpoint from a slow disk may take long.
_TIMEOUT_SECS = 1800.0
_NAMED_EVERY_SECS = 30.0
_numbers = itertools.count()  # of the sessions of this process, the same in each task


def check(context: Any, checkpoint_dir: str | bytes | os.PathLike[str] | None) -> None:
    """Check the values of the checkpoint that the tasks are to restore.

    In a program without eager execution the tasks cannot communicate, so the others do
    not wait. If they are faster than the chief, they fail once more.

    Args:
        context: The distribute coordinator's context of this task.
        checkpoint_dir: The folder to restore from, or None.

    Raises:
        CheckpointError: In the chief, if none of the folder's checkpoints can be used.
        PeerTimeoutError: In another task, if the chief does not report within half an
            hour that it has checked the checkpoint.
    """
    board = coordination.Board(f"restore {next(_numbers)}", context)
    folder = os.fsdecode(checkpoint_dir) if checkpoint_dir else ""
    if not folder or "://" in folder:
        return
    can_talk = bool(coordination.peers(context)) and board.is_open
    if not context.is_chief:
        if can_talk:
            _wait_for_chief(board, folder)
        return
    try:
        with locks.write_lock():
            _check_values(folder)
    finally:
        if can_talk:  # after an error too, so that no task waits for this one for ever
            board.post("checked")


def _check_values(folder: str) -> None:
    newest = recovery.recover(folder)
    while newest is not None:
        problem = checksums.problem(newest.prefix)
        if problem is None:
            return
        newest = recovery.set_aside_latest(folder, problem)


def _wait_for_chief(board: coordination.Board, folder: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECS
    while True:
        try:
            board.read(timeout_secs=_NAMED_EVERY_SECS)
            return
        except tf.errors.DeadlineExceededError as error:
            if time.monotonic() >= deadline:
                raise PeerTimeoutError(
                    f"the chief has not checked the checkpoint in {folder!r} within "
                    f"{_TIMEOUT_SECS:g} s; does its disk answer?"
                ) from error
            _logger.warning(
                "waiting for the chief to check the checkpoint in %r", folder
            )
