"""The tasks of a multi-worker strategy restore what the chief has checked.

Each of them restores by itself, with TensorFlow's own creator of sessions. Where a
value is damaged all fail, and would again whenever they are started: so the chief,
which may set a checkpoint aside, reads all values of it first, and the others wait.
"""

import itertools
import os

from estimator_runtime.checkpoint import checksums, recovery
from estimator_runtime.compat import agreement

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
    """
    board = agreement.Board(f"restore {next(_numbers)}", context)
    folder = checkpoint_dir and os.fsdecode(checkpoint_dir)
    if not folder or "://" in folder:
        return
    can_talk = bool(agreement.peers(context)) and board.is_open
    if not context.is_chief:
        if can_talk:
            board.read()
        return
    try:
        newest = recovery.recover(folder)
        while newest is not None:
            problem = checksums.problem(newest.prefix)
            if problem is None:
                return
            newest = recovery.set_aside_latest(folder, problem)
    finally:
        if can_talk:  # also after an error: nobody is to wait for this task for ever
            board.post("checked")
