"""Cleanup of unfinished saves: completes or removes what dead runs left behind.

If a checkpoint is complete, its files get their final names, the state file names it,
and the older checkpoints that its save was to delete are deleted. If it is incomplete,
its files are removed. The save of a process that is still alive is left alone: that
process holds a lock on its hidden folder. The kernel releases the lock when the process
dies, even if it ran in another container.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator

from estimator_runtime.checkpoint.store import commit, durable, files, locks
from estimator_runtime.checkpoint.store.state_file import (
    STATE_FILE,
    State,
    readable_state,
    write_state,
)
from estimator_runtime.checkpoint.tensor_bundle import index, reading
from estimator_runtime.output.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
# Checkpoints that a dead run was to delete but that are still being read; see
# `commit.NOTE`.
_LATE_NOTE = "late.json"
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
# The state of some writers is unknown: those on another host, and TensorFlow's own.
# They count as dead once nothing has changed for this long.
_DEAD_AFTER_SECS = 600
# A file server sets the times of files, and its clock may be this far behind.
_CLOCKS_DIFFER_SECS = 60


def clean_up(folder: str, now: Callable[[], float] = time.time) -> None:
    """Complete or remove the unfinished saves of dead runs in a folder.

    Saves of living processes on this host are left alone. If the state of a writer is
    unknown, its save is left alone until ten minutes after the last change. The log
    names what cannot be removed.

    Raises:
        OSError: If the folder cannot be read, or a checkpoint cannot be completed.
    """
    for path in temporaries(folder):
        if not is_dead(path, now):
            continue
        TRAINING_LOG.info("Removing %s, which a run that died left behind.", path)
        if _is_hidden_folder(path):
            if not is_late(path):
                _finish(path)
            if _delete_noted(path):
                continue  # `delete_late` removes it
        _remove(path)


def delete_late(folder: str) -> None:
    """Delete checkpoints that dead runs were to delete, once nobody reads them.

    Raises:
        OSError: If the folder cannot be read or changed.
    """
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if is_late(path) and not _delete_noted(path):
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
    folder, name = os.path.split(path)
    if durable.owner(name):
        return durable.final_path(path)
    stock = _STOCK_FOLDER.fullmatch(name) or _STOCK_FILE.fullmatch(name)
    return os.path.join(folder, (stock and stock["prefix"]) or name)


def is_late(path: str) -> bool:
    """Return whether a hidden folder is kept only for deletions that readers delay."""
    return _is_hidden_folder(path) and os.path.exists(os.path.join(path, _LATE_NOTE))


def completed(path: str) -> files.Checkpoint | None:
    """Return the checkpoint in a hidden folder if it was written completely.

    Returns:
        The checkpoint with its final path, and its files wherever they are now. None if
        it is incomplete.
    """
    if not _is_hidden_folder(path) or is_late(path):
        return None
    prefix = prefix_of(path)
    there = files.at(prefix)
    if there.has_index:
        is_new = not commit.has_old(path)
        return there if is_new and there.problem() is None else None
    inside = os.path.join(path, os.path.basename(prefix))
    hidden = files.at(inside)
    # Some data files may have their final names already: the index is renamed last.
    if not hidden.has_index or index.problem(inside, data_prefix=prefix) is not None:
        return None
    return files.Checkpoint(prefix=prefix, files=(*hidden.files, *there.files))


def would_adopt(path: str, checkpoint: files.Checkpoint, state: State | None) -> bool:
    """Return whether a restart resumes from a checkpoint that a dead run completed.

    It does not if the state file was changed after the run died: then somebody went
    back to an older checkpoint. Nor does it if another run has resumed from an older
    checkpoint and trained past this one. Such a run may be on another host, or may have
    the process id of the dead run.

    Args:
        path: The hidden folder that the dead run left behind.
        checkpoint: What `completed` returned for this folder.
        state: The state file's content, or None if it cannot be read.
    """
    folder = os.path.dirname(path)
    if not _is_newest(folder, checkpoint, state):
        return False
    # In a copy of a folder whose files have new times, this may be wrong in either
    # direction. So each restart logs which checkpoint it uses. With a coarse clock, two
    # successive saves may have equal times: nobody edits a file that fast.
    last = max(checkpoint.saved_at, changed_at(path) or 0.0)
    # Rounded as the others are: st_mtime_ns / 1e9 may be larger for the same time.
    state_changed_at = changed_at(os.path.join(folder, STATE_FILE))
    return state_changed_at is None or state_changed_at <= last


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


def _state_changed_ns(folder: str) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(os.path.join(folder, STATE_FILE)).st_mtime_ns
    return None


def _finish(path: str) -> None:
    """Complete the checkpoint of a dead run, or delete what there is of it."""
    folder, prefix = os.path.dirname(path), prefix_of(path)
    state = readable_state(folder)
    checkpoint = completed(path)
    if checkpoint is None:
        there = files.at(prefix)
        is_used = there.has_index or there.is_v1 or (state and prefix in state.paths)
        if not commit.put_back(path) and not is_used:
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
            "Training does not go on from %s, which an interrupted run saved: the "
            "state file was changed after that and does not name it. The checkpoint "
            "stays where it is; to go on from it, name it in the state file.",
            prefix,
        )


def _adopt(folder: str, checkpoint: files.Checkpoint, state: State | None) -> None:
    """Make a checkpoint the newest one in the state file."""
    paths = state.paths if state else ()
    times = state.timestamps if state else ()
    changed = State(
        latest=checkpoint.prefix,
        paths=(*paths, checkpoint.prefix),
        timestamps=(*times, checkpoint.saved_at) if times or not paths else (),
        last_preserved=state.last_preserved if state else None,
    )
    # The time stays: only a change by somebody else makes other saves outdated.
    changed_ns = _state_changed_ns(folder) or int(checkpoint.saved_at * 1e9)
    write_state(folder, changed, mtime_ns=changed_ns)


def _delete_noted(hidden: str) -> bool:
    """Delete what a hidden folder's note lists; return whether a reader holds some."""
    folder = os.path.dirname(hidden)
    state = readable_state(folder)
    was_late = is_late(hidden)
    if state is None or not (was_late or prefix_of(hidden) in state.paths):
        return was_late  # the checkpoint that was to replace them does not exist
    note = os.path.join(hidden, _LATE_NOTE if was_late else commit.NOTE)
    gone = [os.path.join(folder, name) for name in _noted(note, hidden, state)]
    left = []
    for path in gone:
        with locks.deleting(path) as is_free:
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
    """Return the names of the checkpoints that a note may delete, sorted.

    The content of the note is not trusted. A checkpoint counts only if it is of the
    same series, if it is older than both the newest checkpoint and the one that
    replaces it, and if the state file does not name it. The folders in the note are
    ignored, because the current folder may be a copy.
    """
    new = os.path.basename(prefix_of(hidden))
    named = {os.path.basename(path) for path in (state.latest, *state.paths)}
    limits = files.step_of(new), files.step_of(state.latest)

    def may_go(name: str) -> bool:
        step = files.step_of(name)
        return (
            name not in named
            and files.series_of(name) == files.series_of(new)
            and step is not None
            and all(limit is not None and step < limit for limit in limits)
        )

    try:
        noted = json.loads(reading.content(note))
        names = map(os.path.basename, noted if isinstance(noted, list) else ())
        return sorted(filter(may_go, names))
    except FileNotFoundError:
        return []
    except (RecursionError, TypeError, ValueError):  # truncated, or no list of paths
        return []


def _remove(path: str) -> None:
    with _warned(path):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            durable.remove_if_there(path)


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


def _is_hidden_folder(path: str) -> bool:
    is_hidden = durable.owner(os.path.basename(path)) is not None
    return is_hidden and os.path.isdir(path) and not os.path.islink(path)


def _is_temporary(path: str) -> bool:
    """Return whether a path is an unfinished save, ours or that of a Saver.

    A folder belongs to a Saver only if everything in it does: programs may also use
    names such as NAME-1_temp. A symbolic link is never one: what it leads to belongs to
    somebody else.
    """
    name = os.path.basename(path)
    if durable.owner(name):
        return not (files.CONTROL.search(name) or os.path.islink(path))
    # The name is checked first, because there may be thousands of other files.
    if _STOCK_FOLDER.fullmatch(name):
        try:
            inside = os.listdir(path)
        except OSError:  # not a folder, already removed, or not accessible
            return False
        return bool(inside) and all(map(_STOCK_PART.fullmatch, inside))
    return _STOCK_FILE.fullmatch(name) is not None and not os.path.isdir(path)


def _booted_at() -> float | None:
    """Return when this machine booted, in seconds since 1970; None if unknown."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it
    return None if clock is None else time.time() - time.clock_gettime(clock)


def is_dead(
    path: str,
    now: Callable[[], float] = time.time,
    booted_at: Callable[[], float | None] = _booted_at,
) -> bool:
    """Return whether the process that was writing to a path will not continue.

    Args:
        path: A file or folder, named by `durable.temporary_name` or by TensorFlow.
        now: Returns the current time, in seconds since 1970.
        booted_at: Returns when this machine booted, in seconds since 1970, or None.
    """
    changed = changed_at(path)
    if changed is None:  # completed or removed by now
        return False
    is_quiet = now() - changed > _DEAD_AFTER_SECS
    owner = durable.owner(os.path.basename(path))
    if owner is None or owner.identity is None:
        return is_quiet
    me = durable.own_identity()
    # Two processes may have started in the same clock tick.
    if owner.identity == me and owner.pid == os.getpid():
        # If it is not locked, a failed write of this process left it behind.
        return not locks.has_locked_folder(path)
    if me.boot and owner.identity[:2] == me[:2]:
        # Where /proc hides processes, only the lock shows that one is alive.
        is_gone = durable.identity_of(owner.pid) != owner.identity
        return is_gone and not locks.is_folder_locked(path)
    is_locked = locks.is_folder_locked(path)
    if is_locked is None:
        return is_quiet
    # A lock may be visible on one machine only, and two machines may share a host name.
    is_local = bool(me.boot) and owner.identity.boot == me.boot
    if not is_local and owner.host == socket.gethostname():
        booted = booted_at()
        is_local = booted is not None and booted - changed > _CLOCKS_DIFFER_SECS
    try:  # An empty folder may not be locked yet: it is locked before the first write.
        has_begun = bool(os.listdir(path))
    except FileNotFoundError:  # completed or removed by now
        return False
    return not is_locked and (is_quiet or (is_local and has_begun))


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
