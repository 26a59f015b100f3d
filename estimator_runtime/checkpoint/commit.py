"""Commits a checkpoint: files that are complete and on the disk get their names.

A checkpoint is written to a hidden folder beside its final place. In this order, each
on the disk before the next: its files; their names, the index last, because without
one there is no checkpoint; the state file. The hidden folder goes last: as long as it
is there, `finish_dead` knows what a run that died has left half done.
"""

import json
import logging
import os
import shutil
import socket
import time

from estimator_runtime.checkpoint import durable, files, lease
from estimator_runtime.checkpoint.state import (
    State,
    StateError,
    read_state,
    write_state,
)

_logger = logging.getLogger(__name__)
# What belongs to a process that cannot be asked (another host's, or TensorFlow's own)
# is dead when nothing in it has changed for so long.
_DEAD_AFTER_SECS = 600
_NOTE = "gone.json"
# The same, of a run that died, for those of them that somebody still reads.
_LATE_NOTE = "late.json"


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
        OSError: If that cannot be done.
    """
    names = sorted(os.listdir(folder), key=lambda name: name.endswith(".index"))
    for name in names:
        path = os.path.join(folder, name)
        if os.stat(path).st_nlink == 1:  # a link is to a file that is on the disk
            durable.sync_file(path)
    target = os.path.dirname(prefix)
    # An old one of that name must not be taken for this one half way.
    old = files.at(prefix)
    if old.has_index:
        forget(target, prefix)
        files.delete(old)
        durable.sync_folder(target)
    for name in names:
        os.rename(os.path.join(folder, name), os.path.join(target, name))
    durable.sync_folder(target)
    return files.at(prefix)


def leave_note(folder, prefixes):
    """Note which checkpoints are to go when a new one is in the state file.

    Args:
        folder: The hidden folder of the new one, as `move_in` has left it. If this
            process dies before they are deleted, `finish_dead` does it.
        prefixes: Their paths, in the folder of the new one or elsewhere.

    Raises:
        OSError: If it cannot be written.
    """
    with open(os.path.join(folder, _NOTE), "w") as file:
        json.dump([os.path.abspath(prefix) for prefix in prefixes], file)


def forget(folder, prefix):
    """Take a checkpoint out of the state file, if that names others too."""
    state = _readable_state(folder)
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


def finish_dead(folder, now=time.time):
    """Finish or remove what runs that died have left half done in a folder.

    A checkpoint that was complete gets into the state file; of one that was not, the
    files are removed. What a living process of this host writes is left alone, and so
    is, for ten minutes after its last change, what nobody can be asked about.

    Args:
        folder: The folder of the checkpoints.
        now: Gives seconds since 1970.

    Raises:
        OSError: If the folder cannot be read or changed.
    """
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if not is_temporary(name) or not is_dead(name, path, now):
            continue
        _logger.info("Removing %s, which a run that died has left.", path)
        if not os.path.isdir(path):
            durable.remove_if_there(path)
            continue
        if durable.owner(name):
            prefix = os.path.join(folder, name.rpartition(".saving-")[0][1:])
            if not is_late(path):
                _finish(prefix)
            if _delete_noted(path, prefix):
                continue  # `delete_late` removes it
        shutil.rmtree(path)


def delete_late(folder):
    """Delete what a run that died was to delete, and somebody has read until now.

    Raises:
        OSError: If the folder cannot be read or changed.
    """
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if durable.owner(name) and is_late(path) and not _delete_noted(path, None):
            shutil.rmtree(path)


def _finish(prefix):
    checkpoint = files.at(prefix)
    folder = os.path.dirname(prefix)
    state = _readable_state(folder)
    if state is not None and prefix in state.paths:
        return
    if checkpoint.has_index:
        if checkpoint.problem() is None:
            adopt(folder, checkpoint, state)
    else:
        files.delete(checkpoint)


def _delete_noted(hidden, prefix):
    """Delete what a note says; tell whether some is left, because it is being read.

    Args:
        hidden: The folder with the note.
        prefix: What was to take the place of those that go; not used for a late note.
    """
    folder = os.path.dirname(hidden)
    state = _readable_state(folder)
    was_late = is_late(hidden)
    if state is None or not (was_late or prefix in state.paths):
        return was_late  # what was to take their place is not there
    named = {os.path.abspath(path) for path in state.paths}
    try:
        with open(os.path.join(hidden, _LATE_NOTE if was_late else _NOTE)) as file:
            gone = [path for path in json.load(file) if path not in named]
    except (FileNotFoundError, ValueError):  # ValueError: cut off
        return False
    left = []
    for path in gone:
        with lease.deleting(path) as is_free:
            if is_free:
                files.delete(files.at(path))
            else:
                left.append(path)
    if left:
        content = json.dumps(left).encode()
        durable.replace_file(os.path.join(hidden, _LATE_NOTE), content)
    return bool(left)


def is_late(hidden):
    """Tell whether all but deleting what is still read has been done for a run."""
    return os.path.exists(os.path.join(hidden, _LATE_NOTE))


def adopt(folder, checkpoint, state):
    """Make a checkpoint the newest of the state file.

    Args:
        folder: The folder of the state file.
        checkpoint: `Checkpoint`.
        state: `State` so far, or None.
    """
    paths = state.paths if state else ()
    times = state.timestamps if state else ()
    changed = State(
        latest=checkpoint.prefix,
        paths=(*paths, checkpoint.prefix),
        timestamps=(*times, checkpoint.saved_at) if times or not paths else (),
        last_preserved=state.last_preserved if state else None,
    )
    write_state(folder, changed)


def _readable_state(folder):
    try:
        return read_state(folder)
    except StateError:
        return None


def is_temporary(name):
    """Tell whether a name is one of ours, or of a Saver's for what it has not done."""
    if durable.owner(name):
        return True
    stem, mark, _ = name.partition("_temp")
    if mark and name == f"{stem}_temp":
        return files.step_of(stem) is not None
    return name.startswith("checkpoint.tmp")


def is_dead(name, path, now=time.time):
    """Tell whether whoever wrote what is half done will not go on; see `finish_dead`.

    Args:
        name: Its name in the folder.
        path: Its path.
        now: Gives seconds since 1970.
    """
    owner = durable.owner(name)
    if owner is not None and owner[1] == socket.gethostname():
        pid = owner[0]
        # Ours is of an earlier life: this is called before anything is written.
        if pid == os.getpid() or not _is_alive(pid):
            return True
    inside = [os.path.join(path, each) for each in _listed(path)]
    changed = [os.path.getmtime(each) for each in (path, *inside)]
    return now() - max(changed) > _DEAD_AFTER_SECS


def _listed(path):
    return os.listdir(path) if os.path.isdir(path) else []


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
