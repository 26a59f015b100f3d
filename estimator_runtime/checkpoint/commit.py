"""Commits a checkpoint: files that are complete and on the disk get their names.

A checkpoint is written to a hidden folder beside its final place. In this order, each
on the disk before the next: its files; their names, the index last, because without
one there is no checkpoint; the state file. The hidden folder goes last: as long as it
is there, `leftovers` knows what a run that died has left half done.
"""

import contextlib
import json
import os
import shutil

from estimator_runtime.checkpoint import durable, files
from estimator_runtime.checkpoint.state import (
    State,
    StateError,
    read_state,
    write_state,
)

NOTE = "gone.json"


def start(prefix):
    """Make the hidden folder of a checkpoint to be written; give its path.

    Raises:
        OSError: If it cannot be made.
    """
    folder = durable.temporary_name(prefix)
    shutil.rmtree(folder, ignore_errors=True)  # of a write of this process that failed
    os.makedirs(folder)
    return folder


def abandon(folder):
    """Remove a hidden folder and what was written to it, if it is still there."""
    shutil.rmtree(folder, ignore_errors=True)


def move_in(folder, prefix):
    """Sync the files in a hidden folder, and give them their names beside it.

    Args:
        folder: As `start` has made it.
        prefix: The checkpoint's path without suffix.

    Returns:
        `Checkpoint`, complete and durable, not yet named by the state file.

    Raises:
        OSError: If that cannot be done; none of the files has its name.
    """
    new = files.at(os.path.join(folder, os.path.basename(prefix)))
    paths = sorted(new.files, key=lambda path: path.endswith(".index"))
    for path in paths:
        # Another link of it is on the disk; some file systems count none at all.
        if os.stat(path).st_nlink <= 1:
            durable.sync_file(path)
    target = os.path.dirname(prefix)
    # An old one of that name must not be taken for this one half way.
    old = files.at(prefix)
    if old.has_index:
        forget(target, prefix)
        files.delete(old)
        durable.sync_folder(target)
    renames = [(path, os.path.join(target, os.path.basename(path))) for path in paths]
    try:
        for path, final in renames:
            os.rename(path, final)
        durable.sync_folder(target)
    except OSError:
        for path, final in reversed(renames):
            if not os.path.exists(path):
                with contextlib.suppress(OSError):
                    os.rename(final, path)
        raise
    return files.at(prefix)


def leave_note(folder, prefixes):
    """Note which checkpoints are to go when a new one is in the state file.

    Args:
        folder: The hidden folder of the new one, as `move_in` has left it. If this
            process dies before they are deleted, `leftovers.finish_dead` does it.
        prefixes: Their paths, in the folder of the new one.

    Raises:
        OSError: If it cannot be written.
    """
    with open(os.path.join(folder, NOTE), "w") as file:
        json.dump([os.path.abspath(prefix) for prefix in prefixes], file)


def forget(folder, prefix):
    """Take a checkpoint out of the state file, if that names others too."""
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
    write_state(
        folder,
        State(latest=latest, paths=paths, timestamps=times, last_preserved=preserved),
    )


def readable_state(folder):
    """Give the `State` of a folder, or None if there is none that can be read."""
    try:
        return read_state(folder)
    except StateError:
        return None
