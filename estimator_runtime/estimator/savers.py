"""Patches of TensorFlow's functions that restore, save, find and delete checkpoints.

* Finding and saving: TensorFlow's hook writes a checkpoint before the hooks after it
  are called. This runtime writes it in the background, while training goes on. A hook
  that evaluates, exports or restores every N steps would then get the checkpoint before
  it. So functions that find or read a checkpoint, called in the training thread, wait
  for the write. So does a Saver that writes the same names or the same state file.
  Other threads and processes find what is on the disk, as before.
* Restoring: each chief's session comes from `SessionManager.prepare_session`, in one
  process, with parameter servers and in a task of a multi-worker strategy alike. If
  TensorFlow finds no checkpoint, that method initializes the model, and the training
  then overwrites existing checkpoints. A checkpoint that is missed costs all of them,
  so the patched method looks at the files again at the last moment. It does not look
  if the program restores from a path or has a Scaffold without a Saver, because such a
  program does not use the checkpoints of the folder. Nor does it look at folders on
  remote storage. `SessionManager.recover_session` initializes nothing and is not
  patched.
* Deleting: a Saver does not delete a checkpoint that is being read.

The private names that this module uses are the same in all tested versions.

This module is imported with TensorFlow, so it must not import the frozen package.
"""

import collections
import functools
import logging
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.training import (
    checkpoint_utils,
    saver,
    session_manager,
    training,
)

from estimator_runtime.checkpoint.checkpoint import Identity, index_identity
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.save import writer
from estimator_runtime.checkpoint.store import locks, state_file
from estimator_runtime.config.paths import is_local
from estimator_runtime.estimator.removed import api
from estimator_runtime.patching import patch

# Their callers are latest_checkpoint; checkpoint_exists, and so a Saver that restores;
# load_checkpoint, load_variable and list_variables.
_READERS = (
    (checkpoint_management, "_prefix_to_checkpoint_path"),
    (checkpoint_utils, "_get_checkpoint_filename"),
)
_logger = logging.getLogger(__name__)
# Checkpoints that a Saver of this process did not delete because they were being read:
# (prefix, identity of the index, positional arguments, keyword arguments). The queue is
# shared by the Savers of all threads.
_postponed: collections.deque[
    tuple[str, Identity | None, tuple[Any, ...], dict[str, Any]]
] = collections.deque()


def patch_readers_and_savers(_module: ModuleType) -> None:
    """Make TensorFlow's readers and Savers wait for checkpoints of their thread."""
    original = checkpoint_management.get_checkpoint_state
    checkpoint_management.get_checkpoint_state = _refusing_pipes(_waiting(original))
    for module, name in _READERS:
        setattr(module, name, _waiting(getattr(module, name)))
    saver.Saver.save = _waiting_on_conflict(saver.Saver.save)
    # The only reader with public names, which other modules have imported by name.
    state = checkpoint_management.get_checkpoint_state
    saver.get_checkpoint_state = training.get_checkpoint_state = state
    api.add("train", {"get_checkpoint_state": state})


def _waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reader so that it waits for the writes of the calling thread."""

    @functools.wraps(original)
    def read(*args: Any, **kwargs: Any) -> Any:
        writer.wait_for_own()
        return original(*args, **kwargs)

    return read


def _refusing_pipes(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `get_checkpoint_state` so that it reads nothing but a file.

    At a named pipe it would wait for a writer, and a device or a huge file may take all
    memory.
    """
    bind = patch.binder(original)

    @functools.wraps(original)
    def get_checkpoint_state(*args: Any, **kwargs: Any) -> Any:
        given = bind(*args, **kwargs).arguments
        folder, name = given["checkpoint_dir"], given.get("latest_filename")
        path = os.path.join(os.fsdecode(folder), os.fsdecode(name or "checkpoint"))
        state_file.check(path)
        return original(*args, **kwargs)

    return get_checkpoint_state


def _waiting_on_conflict(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Saver.save` so that it waits for writes to the same files."""
    bind = patch.binder(original)

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        given = bind(*args, **kwargs).arguments
        writer.wait_before_save(given["save_path"], given.get("latest_filename"))
        return original(*args, **kwargs)

    return save


def patch_session_manager(_module: ModuleType) -> None:
    """Make `prepare_session` look for checkpoints again before it initializes.

    The patched method raises an error if it would start from step 0 in a folder that
    has checkpoints.
    """
    original = session_manager.SessionManager.prepare_session
    bind = patch.binder(original)

    @functools.wraps(original)
    def prepare_session(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = bind(self, *args, **kwargs).arguments
        folder = given.get("checkpoint_dir") and os.fsdecode(given["checkpoint_dir"])
        if not given.get("saver") or not folder or not is_local(folder):
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


def patch_saver(_module: ModuleType) -> None:
    """Make Savers postpone the deletion of a checkpoint that is being read."""
    checkpoint_management.remove_checkpoint = _postponing_held(
        checkpoint_management.remove_checkpoint
    )


def _postponing_held(original: Callable[..., Any]) -> Callable[..., None]:
    """Wrap `remove_checkpoint` so that it spares checkpoints that are being read.

    Each call of the wrapper first tries to delete those that were spared before.
    """

    def remove(prefix: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with locks.deleting(prefix) as is_free:
            if is_free:
                original(prefix, *args, **kwargs)
            else:
                _postponed.append((prefix, index_identity(prefix), args, kwargs))

    @functools.wraps(original)
    def remove_checkpoint(checkpoint_prefix: str, *args: Any, **kwargs: Any) -> None:
        for _ in range(len(_postponed)):
            try:
                prefix, identity, its_args, its_kwargs = _postponed.popleft()
            except IndexError:  # another thread has taken it
                break
            # A checkpoint that was saved again under this name is not ours to delete.
            if identity is None or identity != index_identity(prefix):
                continue
            try:
                remove(prefix, its_args, its_kwargs)
            except Exception as error:  # noqa: BLE001 (a Saver only logs it, too)
                _logger.warning("%s cannot be deleted: %s", prefix, error)
        remove(checkpoint_prefix, args, kwargs)

    return remove_checkpoint
