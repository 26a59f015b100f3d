"""Commits a checkpoint: files that are complete and on the disk get their names.

A checkpoint is written to a hidden folder beside its final place. In this order, each
on the disk before the next: its files; their names, the index last, because without
one there is no checkpoint; the state file. The hidden folder goes last: as long as it
is there, `leftovers` knows what a run that died has left half done.

A checkpoint that has the name already is moved to a folder in the hidden one first,
and deleted with it. Until then, one of the two can always be recovered.
"""

import contextlib
import json
import logging
import os
import shutil

from estimator_runtime.checkpoint import durable, files, lifetime
from estimator_runtime.checkpoint.state import (
    STATE_FILE,
    State,
    StateError,
    read_state,
    write_state,
)

_logger = logging.getLogger(__name__)

NOTE = "gone.json"
_REPLACED = "replaced"


def start(prefix):
    """Make and lock the hidden folder of a checkpoint to be written; return its path.

    Raises:
        OSError: If it cannot be made.
    """
    folder = durable.temporary_name(prefix)
    if _has_only_one(folder):  # of a write of this process that failed
        put_back(folder)
    lifetime.let_go(folder)
    shutil.rmtree(folder, ignore_errors=True)
    # A model directory that was removed in mid training is not made again in silence.
    os.stat(os.path.dirname(folder) or ".")
    os.makedirs(folder)
    lifetime.hold(folder)
    return folder


def abandon(folder):
    """Remove a hidden folder and what was written to it, if it is still there.

    It stays where it has the only checkpoint of its name, which could not be put back:
    the next run does that.
    """
    try:
        if _has_only_one(folder):
            _logger.warning(
                "%s could not be put back; it is kept in %r, and put back by the next "
                "run",
                _prefix_of(folder),
                folder,
            )
            return
        files.delete(_replaced(folder))  # its index first; half of it is none
        shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        _logger.warning("%r cannot be removed: %s", folder, error.strerror or error)
    finally:
        lifetime.let_go(folder)


def move_in(folder, prefix):
    """Sync the files in a hidden folder, and give them their names beside it.

    Args:
        folder: As `start` has made it.
        prefix: The checkpoint's path without suffix.

    Returns:
        `Checkpoint`, complete and durable, not yet named by the state file.

    Raises:
        OSError: If that cannot be done; none of the files has its name, and the one
            that had it has it again.
    """
    new = files.at(os.path.join(folder, os.path.basename(prefix)))
    paths = sorted(new.files, key=lambda path: path.endswith(".index"))
    for path in paths:
        # Another link of it is on the disk; some file systems count none at all.
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


def has_replaced(folder: str) -> bool:
    """Return whether a hidden folder has a checkpoint that a new one has replaced."""
    return _replaced(folder).has_index


def put_back(folder: str) -> bool:
    """Return a checkpoint that was to be replaced to its place.

    What has them is no longer whole, or is not to stay.

    Args:
        folder: The hidden folder of the new one.

    Returns:
        Whether there was one.

    Raises:
        OSError: If that cannot be done, or not all of it; it can be tried again.
    """
    old, target = _replaced(folder), os.path.dirname(folder)
    if not old.has_index:
        return False
    durable.remove_if_there(f"{_prefix_of(folder)}.index")
    durable.sync_folder(target)
    for path in reversed(files.index_first(old.files)):
        os.replace(path, os.path.join(target, os.path.basename(path)))
    durable.sync_folder(target)
    return True


def _has_only_one(folder: str) -> bool:
    """Return whether a replaced checkpoint is the only one of its name."""
    is_there = os.path.exists(f"{_prefix_of(folder)}.index")
    return not is_there and has_replaced(folder)


def _move_aside(old: files.Checkpoint, folder: str) -> None:
    """Move a checkpoint to a hidden folder; its index goes first, and comes back last.

    So whichever files are in between, that index tells of a move that is half done.
    """
    aside = os.path.join(folder, _REPLACED)
    os.makedirs(aside)
    for path in files.index_first(old.files):
        os.rename(path, os.path.join(aside, os.path.basename(path)))
    for changed in (aside, folder, os.path.dirname(folder)):
        durable.sync_folder(changed)


def _replaced(folder: str) -> files.Checkpoint:
    name = os.path.basename(_prefix_of(folder))
    return files.at(os.path.join(folder, _REPLACED, name))


def _prefix_of(folder: str) -> str:
    parent, name = os.path.split(folder)
    return os.path.join(parent, durable.final_name(name))


def leave_note(folder, prefixes):
    """Note on the disk which checkpoints go when a new one is in the state file.

    Args:
        folder: The hidden folder of the new one, as `move_in` has left it. If this
            process dies before they are deleted, `leftovers.finish_dead` does it.
        prefixes: Their paths, in the folder of the new one.

    Raises:
        OSError: If it cannot be written.
    """
    if not prefixes:
        return
    content = json.dumps([os.path.abspath(prefix) for prefix in prefixes]).encode()
    durable.replace_file(os.path.join(folder, NOTE), content)


def forget(folder, prefix):
    """Take a checkpoint out of the state file, if that names others too.

    For a folder whose readers may find it as a run that died has left it.
    """
    state = readable_state(folder)
    if state is None or prefix not in state.paths:
        return
    kept = [i for i, path in enumerate(state.paths) if path != prefix]
    if not kept:
        return
    times = tuple(state.timestamps[i] for i in kept) if state.timestamps else ()
    paths = tuple(state.paths[i] for i in kept)
    latest = paths[-1] if state.latest == prefix else state.latest
    preserved = state.last_preserved
    left = State(latest=latest, paths=paths, timestamps=times, last_preserved=preserved)
    # Only somebody else's change tells `leftovers` that the new one is not wanted.
    changed_at = os.stat(os.path.join(folder, STATE_FILE)).st_mtime_ns
    write_state(folder, left, mtime_ns=changed_at)


def readable_state(folder):
    """Give the `State` of a folder, or None if there is none that can be read."""
    try:
        return read_state(folder)
    except StateError:
        return None
