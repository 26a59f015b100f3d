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
from estimator_runtime.config import waits
from estimator_runtime.config.paths import is_local
from estimator_runtime.estimator.removed import api

# Their callers are latest_checkpoint; checkpoint_exists, and so a Saver that restores;
# load_checkpoint, load_variable and list_variables.
_READERS = (
    (checkpoint_management, "_prefix_to_checkpoint_path"),
    (checkpoint_utils, "_get_checkpoint_filename"),
)
_logger = logging.getLogger(__name__)
# Checkpoints that Savers of this process, in any thread, did not delete because they
# were being read: (prefix, identity of the index, function that deletes it).
_postponed: collections.deque[tuple[str, Identity | None, Callable[[], None]]] = (
    collections.deque()
)


def patch_readers_and_savers(_module: ModuleType) -> None:
    """Make readers and Savers wait for checkpoints of their thread, and for leases."""
    for module, name in _READERS:
        setattr(module, name, _waiting(getattr(module, name)))
    state = _waiting(_refusing_pipes(checkpoint_management.get_checkpoint_state))
    # The only reader with public names, which other modules have imported by name.
    for module in (checkpoint_management, saver, training):
        module.get_checkpoint_state = state
    api.add("train", {"get_checkpoint_state": state})
    saver.Saver.save = _waiting_on_conflict(saver.Saver.save)
    checkpoint_management.remove_checkpoint = _postponing_held(
        checkpoint_management.remove_checkpoint
    )


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

    @functools.wraps(original)
    def get_checkpoint_state(checkpoint_dir: Any, latest_filename: Any = None) -> Any:
        name = os.fsdecode(latest_filename or "checkpoint")
        state_file.check(os.path.join(os.fsdecode(checkpoint_dir), name))
        return original(checkpoint_dir, latest_filename)

    return get_checkpoint_state


def _waiting_on_conflict(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Saver.save` so that it waits for writes to the same folder."""

    @functools.wraps(original)
    def save(self: Any, sess: Any, save_path: Any, *args: Any, **kwargs: Any) -> Any:
        writer.wait_before_save(save_path)
        return original(self, sess, save_path, *args, **kwargs)

    return save


def _postponing_held(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `remove_checkpoint` so that it spares checkpoints that are being read.

    Each call of the wrapper first tries to delete those that were spared before.
    """

    def remove(prefix: str, *args: Any, **kwargs: Any) -> None:
        with locks.deleting(prefix) as is_free:
            if is_free:
                original(prefix, *args, **kwargs)
            else:
                again = functools.partial(remove, prefix, *args, **kwargs)
                _postponed.append((prefix, index_identity(prefix), again))

    @functools.wraps(original)
    def remove_checkpoint(checkpoint_prefix: str, *args: Any, **kwargs: Any) -> None:
        for _ in range(len(_postponed)):
            try:
                prefix, identity, remove_again = _postponed.popleft()
            except IndexError:  # another thread has taken it
                break
            # A checkpoint that was saved again under this name is not ours to delete.
            if identity is None or identity != index_identity(prefix):
                continue
            try:
                remove_again()
            except Exception as error:  # noqa: BLE001 (a Saver only logs it, too)
                _logger.warning("%s cannot be deleted: %s", prefix, error)
        remove(checkpoint_prefix, *args, **kwargs)

    return remove_checkpoint


def patch_session_manager(_module: ModuleType) -> None:
    """Make sessions look for checkpoints again, and workers often for their chief.

    `prepare_session` raises an error if it would start from step 0 in a folder that has
    checkpoints. The default of `recovery_wait_secs` becomes
    `waits.recovery_wait_secs()`: none of TensorFlow's callers passes this argument, and
    with TensorFlow's 30 s (tensorflow#10679) a worker that checks a moment too early
    loses half a minute.
    """
    manager = session_manager.SessionManager
    stock_init, stock_prepare = manager.__init__, manager.prepare_session

    @functools.wraps(stock_init)
    def init(
        self: Any,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if recovery_wait_secs is None:
            recovery_wait_secs = waits.recovery_wait_secs()
        ops = local_init_op, ready_op, ready_for_local_init_op
        stock_init(self, *ops, graph, recovery_wait_secs, *args, **kwargs)

    @functools.wraps(stock_prepare)
    def prepare_session(
        self: Any,
        master: Any,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        call = functools.partial(
            stock_prepare, self, master, init_op, saver, checkpoint_dir, *args, **kwargs
        )
        folder = checkpoint_dir and os.fsdecode(checkpoint_dir)
        if not saver or not folder or not is_local(folder):
            return call()
        self._restore_checkpoint = _refusing_to_start_over(
            self._restore_checkpoint, folder
        )
        try:
            return call()
        finally:
            del self._restore_checkpoint

    manager.__init__ = init
    manager.prepare_session = prepare_session


def _refusing_to_start_over(
    restore: Callable[..., tuple[Any, bool]], folder: str
) -> Callable[..., tuple[Any, bool]]:
    """Wrap `_restore_checkpoint` so that it raises where it misses a checkpoint."""

    def restore_checkpoint(*args: Any, **kwargs: Any) -> tuple[Any, bool]:
        session, is_restored = restore(*args, **kwargs)
        if not is_restored:
            try:
                recovery.refuse_to_start_over(folder)
            except BaseException:
                session.close()
                raise
        return session, is_restored

    return restore_checkpoint
