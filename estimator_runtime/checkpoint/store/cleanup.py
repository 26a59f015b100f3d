"""Cleanup of unfinished saves: undoes or removes what dead runs left behind.

A save that the state file does not name is undone: its files are removed, and the
checkpoint that it was replacing is put back. So a run that dies loses the time since
the checkpoint that the state file names. The save of a living process is left alone:
that process holds a lock on its hidden folder. The kernel releases the lock when the
process dies, even if it ran in another container.
"""

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator

from estimator_runtime.checkpoint.checkpoint import (
    CONTROL,
    Checkpoint,
    is_in,
)
from estimator_runtime.checkpoint.store import durable, locks
from estimator_runtime.checkpoint.store.commit import SavingFolder
from estimator_runtime.checkpoint.store.state_file import (
    State,
    readable_state,
)
from estimator_runtime.config.paths import step_of
from estimator_runtime.output.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
# Names that TensorFlow writes to before it renames: see TensorBundle and
# TensorSliceWriter in its core/util, `_AddShardedSaveOps` in its training/saver.py (the
# folder NAME_temp), and `atomic_write_string_to_file` in its lib/io/file_io.py (state
# file and graph).
_SHARD = r"-\d{5}-of-\d{5}"
_STOCK_FILE = re.compile(
    r"(checkpoint|graph\.pbtxt)\.tmp[0-9a-f]{32}"
    rf"|(?P<prefix>.+?-\d+)(\.index|\.data{_SHARD}|{_SHARD})?\.tempstate\d+"
)
_STOCK_FOLDER = re.compile(r"(?P<prefix>.+-\d+)_temp(_[0-9a-f]{32})?")
_STOCK_PART = re.compile(rf"part{_SHARD}\.(index|data{_SHARD})(\.tempstate\d+)?")
# A writer without a lock that is visible here counts as dead once nothing has changed
# for this long.
_DEAD_AFTER_SECS = 600


def put_back(folder: str) -> None:
    """Put back the checkpoints that dead runs were replacing.

    Call this before you choose the checkpoint to resume from.

    Raises:
        OSError: If the folder cannot be read, or a checkpoint cannot be put back.
    """
    for saving in _dead_saves(folder):
        if not saving.is_in_place:
            saving.undo()


def remove_leftovers(folder: str, now: Callable[[], float] = time.time) -> None:
    """Undo or remove the unfinished saves of dead runs.

    Call this once the state file names a checkpoint that is good: until then, one that
    it does not name may be the only good one. The log names what cannot be removed.

    Raises:
        OSError: If the folder cannot be read.
    """
    state = readable_state(folder)
    failed = set()  # they may hold the only copy of a checkpoint
    for saving in _dead_saves(folder, now):
        failed.add(saving.path)
        with _warned(saving.path):
            if will_undo(saving, state):
                saving.undo()
                _logger.warning(
                    "%s is removed, because the run that saved it died before it had "
                    "recorded it in the state file",
                    saving.prefix,
                )
            if state is not None:
                _finish_deletions(folder, state)
            failed.remove(saving.path)
    for path in temporaries(folder):
        if path not in failed and is_dead(path, now):
            TRAINING_LOG.info("Removing %s, which a run that died left behind.", path)
            with _warned(path):
                _remove(path)


def temporaries(folder: str) -> list[str]:
    """Return the paths of unfinished saves, ours and those of a Saver, sorted.

    Raises:
        OSError: If the folder cannot be listed.
    """
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return [path for path in paths if _is_temporary(path)]


def prefix_of(path: str) -> str:
    """Return the final path of the checkpoint that is written to a temporary path."""
    if durable.is_temporary_name(path):
        return durable.final_path(path)
    folder, name = os.path.split(path)
    stock = _STOCK_FOLDER.fullmatch(name) or _STOCK_FILE.fullmatch(name)
    return os.path.join(folder, (stock and stock["prefix"]) or name)


def will_undo(saving: SavingFolder, state: State | None) -> bool:
    """Return whether `remove_leftovers` removes the checkpoint of a dead save.

    One that is older than the newest may have been committed, and kept for good since.
    """
    if state is None or not saving.has_moved_in:
        return False
    name, latest = os.path.basename(saving.prefix), step_of(state.latest)
    step = step_of(name)
    is_newer = latest is None or (step is not None and step > latest)
    return is_newer and name not in _names(state)


def is_dead(path: str, now: Callable[[], float] = time.time) -> bool:
    """Return whether the process that was writing to a path will not continue.

    Args:
        path: A file or folder, named by `durable.temporary_name` or by TensorFlow.
        now: Returns the current time, in seconds since 1970.
    """
    changed = changed_at(path)
    is_locked = locks.is_locked(path)
    if changed is None or is_locked:  # None: completed or removed by now
        return False
    if is_locked is False and durable.is_of_this_boot(path):
        # A file that is still empty may be about to be locked.
        return os.path.isdir(path) or bool(_size(path))
    return now() - changed > _DEAD_AFTER_SECS


def changed_at(path: str) -> float | None:
    """Return when a file, or a folder or any file in it, was last changed.

    Returns:
        Seconds since 1970, or None if the path does not exist or cannot be accessed.
    """
    try:
        times = [os.path.getmtime(path)]
        inside = os.listdir(path) if os.path.isdir(path) else []
    except OSError:
        return None
    for name in inside:
        with contextlib.suppress(OSError):  # renamed or deleted by now
            times.append(os.path.getmtime(os.path.join(path, name)))
    return max(times)


def dead_save(path: str, now: Callable[[], float] = time.time) -> SavingFolder | None:
    """Return the save of a dead run in a hidden folder, or None for another path."""
    is_ours = durable.is_temporary_name(path) and os.path.isdir(path)
    return SavingFolder(path) if is_ours and is_dead(path, now) else None


def _dead_saves(
    folder: str, now: Callable[[], float] = time.time
) -> list[SavingFolder]:
    found = [dead_save(path, now) for path in temporaries(folder)]
    return [saving for saving in found if saving is not None]


def _remove(path: str) -> None:
    if not os.path.isdir(path):
        durable.remove_if_there(path)
    elif os.listdir(path):
        shutil.rmtree(path)
    else:  # If its writer was about to lock it, it creates another one.
        os.rmdir(path)


def _finish_deletions(folder: str, state: State) -> None:
    """Remove what is left of named checkpoints that a dead run was deleting.

    They have no index any more. The next save deletes those that still have one.
    """
    for path in state.paths:
        old = Checkpoint.at(path)
        if is_in(folder, path) and path != state.latest and not old.has_index:
            old.delete()


def _names(state: State) -> set[str]:
    """Return the names in a state file without their folder, which may be moved."""
    return {os.path.basename(path) for path in (state.latest, *state.paths)}


@contextlib.contextmanager
def _warned(path: str) -> Iterator[None]:
    """Log a warning and continue if a path cannot be removed.

    It may belong to another user, or NFS may keep a file that is still open.
    """
    try:
        yield
    except OSError as error:
        _logger.warning(
            "%s, which a run that died left behind, cannot be removed: %s",
            path,
            error.strerror or error,
        )


def _is_temporary(path: str) -> bool:
    """Return whether a path is an unfinished save, ours or that of a Saver.

    A folder belongs to a Saver only if everything in it does: programs may also use
    names such as NAME-1_temp. A symbolic link is never one: what it leads to belongs to
    somebody else.
    """
    name = os.path.basename(path)
    if durable.is_temporary_name(name):
        return not (CONTROL.search(name) or os.path.islink(path))
    # The name is checked first, because there may be thousands of other files.
    if _STOCK_FOLDER.fullmatch(name):
        try:
            inside = os.listdir(path)
        except OSError:  # not a folder, already removed, or not accessible
            return False
        return bool(inside) and all(map(_STOCK_PART.fullmatch, inside))
    return _STOCK_FILE.fullmatch(name) is not None and not os.path.isdir(path)


def _size(path: str) -> int:
    """Return the size of a file in bytes, 0 if it is gone."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
