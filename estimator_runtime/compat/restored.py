"""Refuse to initialize a session that should have restored a checkpoint.

Whoever makes a chief's session, in one process, with parameter servers or in a task of
a multi-worker strategy, calls `SessionManager.prepare_session`. It initializes if
TensorFlow finds no checkpoint, and then saves over those that are there. A wrong answer
to "is there a checkpoint?" costs all of them, whichever part of TensorFlow or of this
runtime gave it. So this asks once more, of the files, at the last moment.

A program that restores by a path, or whose Scaffold has no Saver, has not asked for
what is in the folder. It is left alone, and so are folders on remote storage, and
`SessionManager.recover_session`, which initializes nothing.
"""

import functools
import os
from typing import Any

from tensorflow.python.training import session_manager

from estimator_runtime.checkpoint import recovery
from estimator_runtime.compat import calls


def patch_session_manager(_module: Any) -> None:
    """Check the folder between the restore and the initialization."""
    original = session_manager.SessionManager.prepare_session
    bind = calls.binder(original)

    @functools.wraps(original)
    def prepare_session(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = bind(self, *args, **kwargs).arguments
        folder = given.get("checkpoint_dir") and os.fsdecode(given["checkpoint_dir"])
        if not given.get("saver") or not folder or "://" in folder:
            return original(self, *args, **kwargs)
        restore = self._restore_checkpoint

        def restore_checkpoint(*args: Any, **kwargs: Any) -> tuple[Any, bool]:
            session, is_restored = restore(*args, **kwargs)
            if not is_restored:
                try:
                    recovery.refuse_to_start_over(folder)
                except BaseException:
                    session.close()
                    raise
            return session, is_restored

        self._restore_checkpoint = restore_checkpoint
        try:
            return original(self, *args, **kwargs)
        finally:
            del self._restore_checkpoint

    session_manager.SessionManager.prepare_session = prepare_session
