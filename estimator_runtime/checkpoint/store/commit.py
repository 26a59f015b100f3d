"""Commit of a checkpoint: complete, durable files get their final names.

A checkpoint is written to a hidden folder beside its final place. Each of these steps
is on the disk before the next one begins:

1. The files are written.
2. They get their final names. The index is last, because a checkpoint exists only if
   it has an index.
3. The state file names the checkpoint.
4. The hidden folder is removed. Until then, it tells `cleanup` which save a dead run
   left unfinished.

A checkpoint that already has the name is first moved into the hidden folder, and is
deleted with it. Until then, one of the two can always be recovered. The hidden folder
also has a link to its index: while the index in its place is that one, it is not the
checkpoint that the save was to write.
"""

import contextlib
import dataclasses
import filecmp
import json
import logging
import os
import shutil
from collections.abc import Sequence

from estimator_runtime.checkpoint.store import durable, files, locks
from estimator_runtime.checkpoint.store.state_file import (
    STATE_FILE,
    readable_state,
    write_state,
)

_logger = logging.getLogger(__name__)

NOTE = "gone.json"
_REPLACED = "replaced"
_OLD_INDEX = "old-index"


def start(prefix: str) -> str:
    """Create and lock the hidden folder for a new checkpoint, and return its path.

    Raises:
        OSError: If the folder cannot be created.
    """
    folder = durable.temporary_name(prefix)
    if _has_only_one(folder):  # left behind by a failed write of this process
        put_back(folder)
    locks.unlock_folder(folder)
    shutil.rmtree(folder, ignore_errors=True)
    # If the model directory was removed during training, this fails. It does not
    # silently create the directory again.
    os.stat(os.path.dirname(folder) or ".")
    os.makedirs(folder)
    locks.lock_folder(folder)
    old = f"{prefix}.index"
    if os.path.exists(old):
        try:
            os.link(old, os.path.join(folder, _OLD_INDEX))
        except OSError:  # a file system without hard links
            shutil.copyfile(old, os.path.join(folder, _OLD_INDEX))
    return folder


def abandon(folder: str) -> None:
    """Remove a hidden folder and its content, if it still exists.

    The folder stays if it holds the only checkpoint of its name, because that could not
    be moved back. The next run moves it back.
    """
    try:
        if _has_only_one(folder):
            _logger.warning(
                "%s could not be moved back; it stays in %r until the next run moves "
                "it back",
                durable.final_path(folder),
                folder,
            )
            return
        # With the index deleted first, no partly deleted checkpoint looks complete.
        files.delete(_replaced(folder))
        shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        _logger.warning("%r cannot be removed: %s", folder, error.strerror or error)
    finally:
        locks.unlock_folder(folder)


def move_in(folder: str, prefix: str) -> files.Checkpoint:
    """Sync the files in a hidden folder, and move them to their final names.

    Returns:
        The checkpoint, complete and durable. The state file does not name it yet.

    Raises:
        OSError: If a step fails. Then none of the new files has its final name, and an
            old checkpoint of that name is in its place again.
    """
    new = files.at(os.path.join(folder, os.path.basename(prefix)))
    paths = sorted(new.files, key=lambda path: path.endswith(".index"))
    for path in paths:
        # A file with several links is on the disk already, under another name. Some
        # file systems do not count links and report 0, so these files are synced too.
        if os.stat(path).st_nlink <= 1:
            durable.sync_file(path)
    target = os.path.dirname(prefix)
    renames = [(path, os.path.join(target, os.path.basename(path))) for path in paths]
    try:
        old = files.at(prefix)
        if old.has_index:
            _move_aside(old, folder)
        for path, final in renames:
            os.rename(path, final)
        durable.sync_folder(target)
    except OSError:
        for path, final in reversed(renames):
            if not os.path.exists(path):
                with contextlib.suppress(OSError):
                    os.rename(final, path)
        with contextlib.suppress(OSError):  # see `abandon`
            put_back(folder)
        raise
    return files.at(prefix)


def has_old(folder: str) -> bool:
    """Return whether the checkpoint in place is older than the save of a hidden folder.

    Raises:
        OSError: If an index cannot be read.
    """
    # A copy of the model directory has no links, so the content decides.
    mark = os.path.join(folder, _OLD_INDEX)
    if has_replaced(folder) or not os.path.exists(mark):
        return False
    return filecmp.cmp(mark, f"{durable.final_path(folder)}.index", shallow=False)


def has_replaced(folder: str) -> bool:
    """Return whether a hidden folder holds a checkpoint that a new one replaces."""
    return _replaced(folder).has_index


def put_back(folder: str) -> bool:
    """Move a checkpoint that was to be replaced back to its place.

    It replaces the new files there, which are incomplete or no longer wanted.

    Returns:
        Whether there was a checkpoint to move back.

    Raises:
        OSError: If some files cannot be moved. You can call this again.
    """
    old, target = _replaced(folder), os.path.dirname(folder)
    if not old.has_index:
        return False
    durable.remove_if_there(f"{durable.final_path(folder)}.index")
    durable.sync_folder(target)
    for path in reversed(files.index_first(old.files)):
        os.replace(path, os.path.join(target, os.path.basename(path)))
    durable.sync_folder(target)
    return True


def _has_only_one(folder: str) -> bool:
    """Return whether a hidden folder holds the only checkpoint of its name."""
    is_there = os.path.exists(f"{durable.final_path(folder)}.index")
    return not is_there and has_replaced(folder)


def _move_aside(old: files.Checkpoint, folder: str) -> None:
    """Move a checkpoint into a hidden folder, its index first.

    `put_back` moves the index last. So as long as the index is in the hidden folder,
    there is something to move back, wherever the other files are.
    """
    aside = os.path.join(folder, _REPLACED)
    os.makedirs(aside)
    for path in files.index_first(old.files):
        os.rename(path, os.path.join(aside, os.path.basename(path)))
    for changed in (aside, folder, os.path.dirname(folder)):
        durable.sync_folder(changed)


def _replaced(folder: str) -> files.Checkpoint:
    name = os.path.basename(durable.final_path(folder))
    aside = os.path.join(folder, _REPLACED)
    if os.path.islink(folder) or os.path.islink(aside):  # it is in another folder
        return files.Checkpoint(prefix=os.path.join(aside, name), files=())
    return files.at(os.path.join(aside, name))


def leave_note(folder: str, prefixes: Sequence[str]) -> None:
    """Record which checkpoints to delete once the state file names a new one.

    If this process dies before it deletes them, `cleanup.clean_up` does so.

    Args:
        folder: The hidden folder of the new checkpoint, as `move_in` has left it.
        prefixes: Paths of the checkpoints to delete, in the folder of the new one.

    Raises:
        OSError: If the note cannot be written.
    """
    if not prefixes:
        return
    content = json.dumps([os.path.abspath(prefix) for prefix in prefixes]).encode()
    durable.replace_file(os.path.join(folder, NOTE), content)


def forget(folder: str, prefix: str) -> None:
    """Remove a checkpoint from the state file, if the file names others too.

    Use this for a folder whose readers may find it in the state that a dead run left.
    """
    state = readable_state(folder)
    if state is None or prefix not in state.paths:
        return
    kept = [i for i, path in enumerate(state.paths) if path != prefix]
    if not kept:
        return
    paths = tuple(state.paths[i] for i in kept)
    left = dataclasses.replace(
        state,
        latest=paths[-1] if state.latest == prefix else state.latest,
        paths=paths,
        timestamps=tuple(state.timestamps[i] for i in kept) if state.timestamps else (),
    )
    # The time stays. A later one would tell `cleanup` that somebody else has changed
    # the file and does not want the new checkpoint.
    changed_at = os.stat(os.path.join(folder, STATE_FILE)).st_mtime_ns
    write_state(folder, left, mtime_ns=changed_at)
