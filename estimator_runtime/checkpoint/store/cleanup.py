"""What runs that died have left half done in a folder: finished, or removed.

A checkpoint that was complete gets its names and its place in the state file; of one
that was not, the files go, and so does what was to be deleted for it.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import time

from estimator_runtime.checkpoint import (
    bundle,
    commit,
    durable,
    files,
    lease,
    lifetime,
)
from estimator_runtime.checkpoint.state import STATE_FILE, State, write_state
from estimator_runtime.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
# What those were to delete that somebody still reads; see `commit.NOTE`.
_LATE_NOTE = "late.json"
# What TensorFlow writes to before it renames: see TensorBundle and TensorSliceWriter in
# its core/util, `_AddShardedSaveOps` in its training/saver.py (the folder NAME_temp),
# and `atomic_write_string_to_file` in its lib/io/file_io.py (state file and graph).
_SHARD = r"-\d{5}-of-\d{5}"
_STOCK_FILE = re.compile(
    r"(checkpoint|graph\.pbtxt)\.tmp[0-9a-f]{32}"
    rf"|(?P<prefix>.+?-\d+)(\.index|\.data{_SHARD}|{_SHARD})?\.tempstate\d+"
)
_STOCK_FOLDER = re.compile(r"(?P<prefix>.+-\d+)_temp(_[0-9a-f]{32})?")
_STOCK_PART = re.compile(rf"part{_SHARD}\.(index|data{_SHARD})(\.tempstate\d+)?")


def finish_dead(folder, now=time.time):
    """Finish or remove what runs that died have left half done in a folder.

    What a living process of this host writes is left alone, and so is, for ten minutes
    after its last change, what nobody can be asked about. What cannot be removed is
    named in the log.

    Args:
        folder: The folder of the checkpoints.
        now: Gives seconds since 1970.

    Raises:
        OSError: If the folder cannot be read, or a checkpoint not be finished.
    """
    for path in temporaries(folder):
        if not lifetime.is_dead(path, now):
            continue
        TRAINING_LOG.info("Removing %s, which a run that died has left.", path)
        if _is_hidden_folder(path):
            if not is_late(path):
                _finish(path)
            if _delete_noted(path):
                continue  # `delete_late` removes it
        _remove(path)


def delete_late(folder):
    """Delete what a run that died was to delete, and somebody has read until now.

    Raises:
        OSError: If the folder cannot be read or changed.
    """
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if is_late(path) and not _delete_noted(path):
            _remove(path)


def temporaries(folder):
    """Give the paths of what a save has not finished, ours or a Saver's, sorted.

    Raises:
        OSError: If the folder cannot be listed.
    """
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return [path for path in paths if _is_temporary(path)]


def prefix_of(path):
    """Give the path that the checkpoint gets which is written to a temporary one."""
    folder, name = os.path.split(path)
    if durable.owner(name):
        return os.path.join(folder, durable.final_name(name))
    stock = _STOCK_FOLDER.fullmatch(name) or _STOCK_FILE.fullmatch(name)
    return os.path.join(folder, (stock and stock["prefix"]) or name)


def is_late(path):
    """Tell whether all but deleting what is still read has been done for a run."""
    return _is_hidden_folder(path) and os.path.exists(os.path.join(path, _LATE_NOTE))


def completed(path):
    """Give the checkpoint that was written to a hidden folder, if all of it was.

    Returns:
        `Checkpoint` with the path that it has or gets, and its files wherever they are;
        or None.
    """
    if not _is_hidden_folder(path) or is_late(path):
        return None
    prefix = prefix_of(path)
    there = files.at(prefix)
    if there.has_index:
        return there if there.problem() is None else None
    inside = os.path.join(path, os.path.basename(prefix))
    hidden = files.at(inside)
    # Some of its data may have its name already: the index is the last to get it.
    if not hidden.has_index or bundle.problem(inside, data_prefix=prefix) is not None:
        return None
    return files.Checkpoint(prefix=prefix, files=(*hidden.files, *there.files))


def would_adopt(path: str, checkpoint: files.Checkpoint, state: State | None) -> bool:
    """Return whether a restart goes on from a checkpoint that a dead run completed.

    It does not if the state file has been changed since: somebody went back to an
    older checkpoint. Nor if a run has gone on from an older one meanwhile, past it: on
    another host, or with the process id of the dead one taken.

    Args:
        path: The hidden folder that the dead run has left.
        checkpoint: What `completed` returned for it.
        state: `State` of the folder, or None.
    """
    is_newest = _is_newest(os.path.dirname(path), checkpoint, state)
    return is_newest and not _is_outdated(path, checkpoint)


def _is_newest(folder: str, checkpoint: files.Checkpoint, state: State | None) -> bool:
    if state is not None:
        if checkpoint.prefix in state.paths:
            return False
        steps = [files.step_of(state.latest)]
    else:
        found = files.find(folder)
        steps = [each.step for each in found if each.prefix != checkpoint.prefix]
    if checkpoint.step is None:
        return False
    return all(step is not None and step < checkpoint.step for step in steps)


def _is_outdated(path: str, checkpoint: files.Checkpoint) -> bool:
    """Return whether the state file is newer than what a dead run did last.

    In a copy of a folder with times of its own, this may be wrong either way. So the
    log says at each restart which of the two was used. Equal times, where clocks are
    coarse, are those of two saves in a row: nobody edits a file that fast.
    """
    last = max(checkpoint.saved_at, lifetime.changed_at(path) or 0.0)
    changed_ns = _state_changed_ns(os.path.dirname(path))
    return changed_ns is not None and changed_ns / 1e9 > last


def _state_changed_ns(folder: str) -> int | None:
    """Return when the state file was changed, in nanoseconds; None if there is none."""
    try:
        return os.stat(os.path.join(folder, STATE_FILE)).st_mtime_ns
    except FileNotFoundError:
        return None


def _finish(path: str) -> None:
    folder, prefix = os.path.dirname(path), prefix_of(path)
    state = commit.readable_state(folder)
    checkpoint = completed(path)
    if checkpoint is None:
        if commit.put_back(path):
            return
        there = files.at(prefix)
        is_named = state is not None and prefix in state.paths
        if not (is_named or there.has_index or there.is_v1):
            with _warned(prefix):
                files.delete(there)
        return
    is_adopted = would_adopt(path, checkpoint, state)
    if not files.at(prefix).has_index:
        checkpoint = commit.move_in(path, prefix)
    if is_adopted:
        _adopt(folder, checkpoint, state)
        _logger.warning(
            "Training goes on from %s, which an interrupted run saved but had not yet "
            "recorded in the state file.",
            prefix,
        )
    elif _is_newest(folder, checkpoint, state):
        _logger.warning(
            "Training does not go on from %s, which a run had saved when it died: the "
            "state file was changed after that, and does not name it. The checkpoint "
            "stays where it is; name it in the state file to go on from it.",
            prefix,
        )


def _adopt(folder: str, checkpoint: files.Checkpoint, state: State | None) -> None:
    """Make a checkpoint the newest of the state file."""
    paths = state.paths if state else ()
    times = state.timestamps if state else ()
    changed = State(
        latest=checkpoint.prefix,
        paths=(*paths, checkpoint.prefix),
        timestamps=(*times, checkpoint.saved_at) if times or not paths else (),
        last_preserved=state.last_preserved if state else None,
    )
    # Only somebody else's change makes another save of a dead run outdated.
    changed_ns = _state_changed_ns(folder)
    if changed_ns is None:
        changed_ns = int(checkpoint.saved_at * 1e9)
    write_state(folder, changed, mtime_ns=changed_ns)


def _delete_noted(hidden):
    """Delete what a note says; tell whether some is left, because it is being read."""
    folder = os.path.dirname(hidden)
    state = commit.readable_state(folder)
    was_late = is_late(hidden)
    if state is None or not (was_late or prefix_of(hidden) in state.paths):
        return was_late  # what was to take their place is not there
    note = os.path.join(hidden, _LATE_NOTE if was_late else commit.NOTE)
    gone = [os.path.join(folder, name) for name in _noted(note, hidden, state)]
    left = []
    for path in gone:
        with lease.deleting(path) as is_free:
            if is_free:
                with _warned(path):
                    files.delete(files.at(path))
            else:
                left.append(path)
    if left:
        content = json.dumps(left).encode()
        durable.replace_file(os.path.join(hidden, _LATE_NOTE), content)
    return bool(left)


def _noted(note: str, hidden: str, state: State) -> list[str]:
    """Return the names of the checkpoints that a note may have deleted, sorted.

    Anything may be in its file. Only checkpoints of the same series count that are
    older than the newest one and than the one that they go for, and that the state file
    does not name. Their folder does not count: this one may be a copy of that.
    """
    new = os.path.basename(prefix_of(hidden))
    named = {os.path.basename(path) for path in (state.latest, *state.paths)}
    limits = files.step_of(new), files.step_of(state.latest)

    def may_go(name):
        step = files.step_of(name)
        return (
            name not in named
            and files.series_of(name) == files.series_of(new)
            and None not in (step, *limits)
            and step < min(limits)
        )

    try:
        with open(note, encoding="utf-8") as file:
            noted = json.load(file)
        if not isinstance(noted, list):
            return []
        return sorted(filter(may_go, map(os.path.basename, noted)))
    except (FileNotFoundError, IsADirectoryError):
        return []
    except (RecursionError, TypeError, ValueError):  # cut off, or no list of paths
        return []


def _remove(path):
    with _warned(path):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            durable.remove_if_there(path)


@contextlib.contextmanager
def _warned(path):
    """Go on with a warning where something cannot be removed.

    It may be another user's, or NFS keeps a file of it for whoever has that open.
    """
    try:
        yield
    except OSError as error:
        _logger.warning(
            "%s, which a run that died has left, cannot be removed: %s",
            path,
            error.strerror or error,
        )


def _is_hidden_folder(path):
    return durable.owner(os.path.basename(path)) is not None and os.path.isdir(path)


def _is_temporary(path):
    """Tell whether a path is one of ours, or of a Saver's for what it has not done.

    A folder is a Saver's only if all in it is: anybody may call one NAME-1_temp.
    """
    name = os.path.basename(path)
    if durable.owner(name):
        return True
    # By the name first: there may be thousands of others.
    if _STOCK_FOLDER.fullmatch(name):
        try:
            inside = os.listdir(path)
        except OSError:  # no folder, gone meanwhile, or somebody else's
            return False
        return bool(inside) and all(map(_STOCK_PART.fullmatch, inside))
    return _STOCK_FILE.fullmatch(name) is not None and not os.path.isdir(path)
