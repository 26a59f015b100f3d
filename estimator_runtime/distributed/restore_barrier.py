"""The tasks of a multi-worker strategy restore what the chief has checked.

Each of them restores by itself, with TensorFlow's own creator of sessions. Where a
value is damaged all fail, and would again whenever they are started: so the chief,
which may set a checkpoint aside, reads all values of it first, and the others wait.
"""

import itertools
import logging
import os
import time

import tensorflow as tf

from estimator_runtime.checkpoint import checksums, recovery, turns
from estimator_runtime.compat import agreement
from estimator_runtime.errors import PeerTimeoutError

_logger = logging.getLogger(__name__)
# Reading all of a checkpoint may take long, from a slow disk.
_TIMEOUT_SECS = 1800.0
_NAMED_EVERY_SECS = 30.0
_numbers = itertools.count()  # of the sessions of this process, the same in each task


def check(context, checkpoint_dir):
    """Check the values of the checkpoint that the tasks are to restore.

    Where the tasks cannot talk, in a program without eager execution, the others do not
    wait: if they are faster than the chief, they fail once more.

    Args:
        context: The distribute coordinator's context of this task.
        checkpoint_dir: The folder to restore from, or None.

    Raises:
        CheckpointError: In the chief, if none of the folder's checkpoints can be used.
        PeerTimeoutError: In another task, if the chief does not say within half an hour
            that it has checked it.
    """
    board = agreement.Board(f"restore {next(_numbers)}", context)
    folder = checkpoint_dir and os.fsdecode(checkpoint_dir)
    if not folder or "://" in folder:
        return
    can_talk = bool(agreement.peers(context)) and board.is_open
    if not context.is_chief:
        if can_talk:
            _wait_for_chief(board, folder)
        return
    try:
        with turns.turn():
            _check_values(folder)
    finally:
        if can_talk:  # also after an error: nobody is to wait for this task for ever
            board.post("checked")


def _check_values(folder):
    newest = recovery.recover(folder)
    while newest is not None:
        problem = checksums.problem(newest.prefix)
        if problem is None:
            return
        newest = recovery.set_aside_latest(folder, problem)


def _wait_for_chief(board, folder):
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
