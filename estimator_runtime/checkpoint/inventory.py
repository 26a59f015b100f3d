"""The inventory of a model directory: what is in it, and what a restart would use."""

import contextlib
import dataclasses
import glob
import itertools
import os
from collections.abc import Callable, Iterable
from typing import cast

from estimator_runtime.checkpoint.checkpoint import Checkpoint
from estimator_runtime.checkpoint.restore.recovery import (
    FolderScan,
    scan,
    scan_and_hold,
)
from estimator_runtime.checkpoint.store import cleanup, locks
from estimator_runtime.checkpoint.tensor_bundle.reading import UnreadableError
from estimator_runtime.config.paths import is_local
from estimator_runtime.errors import CheckpointError

GOOD, DAMAGED, ORPHAN, TEMPORARY = "good", "damaged", "orphan", "temporary"
UNREADABLE = "unreadable"
_CHECK_DISK = "check that its disk or file server is responding"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(Checkpoint):
    """A checkpoint, or the files of an unfinished save, in an inventory.

    Attributes:
        state: One of:

            * "good".
            * "damaged": a restart would set it aside.
            * "unreadable": its disk returns an error, which would end a restart.
            * "orphan": files without an index, which are not those of the newest that
              the state file names. A restart ignores them.
            * "temporary": files of a save that has not finished.
        reason: Why it is not good, in a few words; None if it is good.
        is_read: Whether its data was read, and no problem found.
        hidden: Path of the unfinished save, or None.
    """

    state: str
    reason: str | None = None
    is_read: bool = False
    hidden: str | None = None

    @property
    def path(self) -> str:
        """Path without suffix, or the hidden path of an unfinished save."""
        return self.hidden or self.prefix

    @property
    def own_bytes(self) -> int:
        """Size of its files in bytes, without .meta files: they are links to one."""
        own = tuple(path for path in self.files if not path.endswith(".meta"))
        return Checkpoint(prefix=self.prefix, files=own).bytes

    @property
    def saved_at(self) -> float:
        """Time of the last change, in seconds since 1970."""
        changed_at = cleanup.changed_at(self.hidden) if self.hidden else None
        return changed_at or super().saved_at


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """The checkpoints of a folder, as they are now.

    Attributes:
        folder: Absolute path.
        entries: One `Entry` each, in order of their steps, the lowest first.
        bytes: Size of all their files, in bytes. A file with several names counts once.
        restart: The entry that a restart would continue from, or None.
        state_problem: What is wrong with the state file, or None.
    """

    folder: str
    entries: tuple[Entry, ...]
    bytes: int
    restart: Entry | None
    state_problem: str | None

    @property
    def newest(self) -> Entry | None:
        """The checkpoint with the highest step that is not an orphan, or None.

        If a restart would continue from a checkpoint, only checkpoints with the same
        name before the step are considered.
        """
        found = [
            each for each in self.entries if each.state in (GOOD, DAMAGED, UNREADABLE)
        ]
        if self.restart is not None:
            found = [each for each in found if each.series == self.restart.series]
        return max(found, key=_step, default=None)

    @property
    def is_sound(self) -> bool:
        """Whether a restart would lose nothing that was saved."""
        # `newest` considers the checkpoint that a restart would use, so it is not None.
        return self.restart is not None and _step(self.restart) >= _step(
            cast(Entry, self.newest)
        )


def take(folder: str, problem: Callable[[str], str | None] | None = None) -> Inventory:
    """Return the inventory of a folder.

    A training may continue to save and delete checkpoints, so the inventory is that of
    one moment. This function changes nothing. A restart also removes or finishes the
    incomplete work of dead runs; the inventory takes that into account.

    Args:
        folder: Path of a model directory.
        problem: Function that takes the path, without suffix, of a checkpoint that
            looks good, and returns what is wrong with it, or None. With None, no
            further checks are made. See `checksums.problem`.

    Returns:
        The inventory.

    Raises:
        CheckpointError: If the folder does not exist, is empty, has no checkpoint, or
            is on remote storage, which only TensorFlow can read.
    """
    if not is_local(folder):
        raise CheckpointError(
            f"{folder!r} is not on a file system of this machine; give a folder that "
            "it is mounted at, or copied to"
        )
    folder = os.path.abspath(folder)
    try:
        with locks.together():
            return _take(folder, problem)
    except CheckpointError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        raise CheckpointError(
            f"{folder!r} {'does not exist' if is_missing else 'is not a folder'}; give "
            "the model_dir of a training"
        ) from error
    except OSError as error:
        is_denied = isinstance(error, PermissionError)
        raise CheckpointError(
            f"{folder!r} cannot be read: {error.strerror} ({error.filename!r}); "
            + ("run this as a user with read permission" if is_denied else _CHECK_DISK)
        ) from error


def _take(folder: str, problem: Callable[[str], str | None] | None) -> Inventory:
    seen = scan_and_hold(folder)
    if not os.listdir(folder):
        raise CheckpointError(
            f"{folder!r} is empty: no training has saved a checkpoint there; is it the "
            "model_dir?"
        )
    known: dict[str, str | None] = {}
    examined = [
        _examine(folder, each, each.prefix == seen.latest, known, problem)
        for each in _found(folder, seen)
    ]
    entries = (*examined, *map(_temporary, seen.temporary))
    found = [entry for entry in entries if entry is not None]
    if not found:
        raise CheckpointError(
            f"{folder!r} has no checkpoints, but other files; is it the model_dir?"
        )
    found.sort(key=lambda each: (_step(each), each.path))
    unreadable = {each.path for each in found if each.state == UNREADABLE}
    # A restart fails at the first checkpoint that it cannot read.
    before = itertools.takewhile(
        lambda each: each.prefix not in unreadable, seen.candidates
    )
    best, _ = dataclasses.replace(seen, candidates=tuple(before)).plan(known)
    good = [e for e in found if best and e.path == best.prefix and e.state == GOOD]
    return Inventory(
        folder=folder,
        entries=tuple(found),
        bytes=_total_bytes(found),
        restart=good[0] if good else None,
        state_problem=seen.lost,
    )


def _examine(
    folder: str,
    checkpoint: Checkpoint,
    is_latest: bool,
    known: dict[str, str | None],
    problem: Callable[[str], str | None] | None,
) -> Entry | None:
    """Return the entry of a checkpoint; None if a training has just deleted it.

    Args:
        folder: The folder of the inventory.
        checkpoint: The checkpoint.
        is_latest: Whether the state file names it as the newest.
        known: Gets what `problem` returns, by path without suffix.
        problem: As in `take`.
    """
    is_read = False
    state = DAMAGED if checkpoint.has_index or is_latest else ORPHAN
    with locks.reading(checkpoint.prefix):  # a training may be deleting others
        try:
            reason = checkpoint.problem()
            if reason is None and problem is not None and checkpoint.has_index:
                reason = known[checkpoint.prefix] = problem(checkpoint.prefix)
                is_read = reason is None
        except UnreadableError as error:
            reason, state = error.reason, UNREADABLE
    if reason is None:
        state = GOOD
    elif _was_deleted(folder, checkpoint):
        return None
    return Entry(
        prefix=checkpoint.prefix,
        files=checkpoint.files,
        state=state,
        reason=reason,
        is_read=is_read,
    )


def _found(folder: str, seen: FolderScan) -> Iterable[Checkpoint]:
    """Return the checkpoints that the inventory shows, except temporary files."""
    found = {
        each.prefix: each
        for each in seen.found
        # A single index file may belong to another program.
        if len(each.files) > 1 or not each.has_index
    }
    # The state file may name checkpoints in other folders, or without a number.
    for path in seen.named:
        # Older ones may be missing: a save deletes them before it names them no more.
        each = Checkpoint.at(path)
        if path not in found and (each.files or path == seen.latest):
            found[path] = each
    for path in seen.temporary:
        there = found.get(cleanup.prefix_of(path))
        if there is not None and _is_temporary(there, path, seen):
            del found[there.prefix]
    return found.values()


def _is_temporary(there: Checkpoint, path: str, seen: FolderScan) -> bool:
    """Return whether the files of a checkpoint are those of an unfinished save."""
    is_whole = there.prefix in seen.named and there.has_index
    if not cleanup.is_dead(path) and not is_whole:
        return True  # the save is renaming its files to their final names
    saving = cleanup.dead_save(path)
    return saving is not None and cleanup.will_undo(saving, seen.state)


def _was_deleted(folder: str, checkpoint: Checkpoint) -> bool:
    """Return whether a training deleted a checkpoint while it was examined."""
    if not checkpoint.has_index or Checkpoint.at(checkpoint.prefix).has_index:
        return False
    return checkpoint.prefix != scan(folder).latest


def _total_bytes(entries: Iterable[Entry]) -> int:
    """Return the size of all files of some entries; one with several names is one."""
    sizes: dict[tuple[int, int], int] = {}
    for path in (path for entry in entries for path in entry.files):
        with contextlib.suppress(FileNotFoundError):  # deleted in the meantime
            stat = os.stat(path)
            sizes[stat.st_dev, stat.st_ino] = stat.st_size
    return sum(sizes.values())


def _temporary(path: str) -> Entry | None:
    """Return the entry of an unfinished save; None if it has finished by now."""
    if cleanup.changed_at(path) is None:
        return None
    inside = [path]
    if os.path.isdir(path):
        inside += glob.glob(os.path.join(glob.escape(path), "*"))
    reason = "being written"
    if cleanup.is_dead(path):
        reason = "left by a run that died"
    return Entry(
        prefix=cleanup.prefix_of(path),
        files=tuple(each for each in inside if os.path.isfile(each)),
        state=TEMPORARY,
        reason=reason,
        hidden=path,
    )


def _step(entry: Entry | Checkpoint) -> int:
    return -1 if entry.step is None else entry.step
