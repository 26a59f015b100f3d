"""What lies in a model directory, and what a restart would make of it."""

import contextlib
import dataclasses
import glob
import itertools
import os

from estimator_runtime.checkpoint import files, lease, leftovers, lifetime
from estimator_runtime.checkpoint.look import look, look_and_hold
from estimator_runtime.checkpoint.reading import UnreadableError
from estimator_runtime.errors import CheckpointError

GOOD, DAMAGED, ORPHAN, TEMPORARY = "good", "damaged", "orphan", "temporary"
UNREADABLE = "unreadable"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A checkpoint, or what is left of one or will become one.

    Attributes:
        path: Without suffix, such as "/ckpt/model.ckpt-100".
        step: The number at the end of its name, or None.
        files: Paths of its files.
        bytes: Size of its files, in bytes.
        own_bytes: Size of those that no other entry has too, by another name: .meta
            files are links to one.
        saved_at: Time of its newest file, in seconds since 1970.
        state: "good"; "damaged", and would be set aside; "unreadable", as its disk
            answers with an error, and would end a restart; "orphan", files without an
            index that the state file does not name, which no restart looks at;
            "temporary", what a save has not finished.
        reason: Why it is not good, in a few words; None if it is.
        is_read: Whether its data was read, and nothing found wrong with it.
    """

    path: str
    step: int | None
    files: tuple[str, ...]
    bytes: int
    own_bytes: int
    saved_at: float
    state: str
    reason: str | None = None
    is_read: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inventory:
    """The checkpoints of a folder, as they are now.

    Attributes:
        folder: Absolute path.
        entries: One `Entry` each, oldest step first.
        bytes: Size of all their files, in bytes; a file with several names counts once.
        restart: The one that a restart would go on from, or None.
        state_problem: What is wrong with the state file, or None.
    """

    folder: str
    entries: tuple[Entry, ...]
    bytes: int
    restart: Entry | None
    state_problem: str | None

    @property
    def newest(self):
        """The checkpoint of the largest step that is no orphan, or None.

        It is one of those that have the name of what a restart would go on from.
        """
        found = [
            each for each in self.entries if each.state in (GOOD, DAMAGED, UNREADABLE)
        ]
        if self.restart is not None:
            name = files.series_of(self.restart.path)
            found = [each for each in found if files.series_of(each.path) == name]
        return max(found, key=_step, default=None)

    @property
    def is_sound(self):
        """Whether a restart would lose nothing of what was saved."""
        return self.restart is not None and _step(self.restart) >= _step(self.newest)


def take(folder, problem=None):
    """Look what is in a folder.

    Args:
        folder: Path of a model directory.
        problem: Says what is wrong with a checkpoint that looks good, of its path
            without suffix; None looks no further. See `checksums.problem`.

    Returns:
        `Inventory`, of one moment: a training may go on saving and deleting. Nothing is
        changed. A restart also removes or finishes what dead runs left half done; that
        is taken into account.

    Raises:
        CheckpointError: If there is no such folder, nothing in it, or no checkpoint, or
            if it is on remote storage, which only TensorFlow could read.
    """
    if "://" in folder:
        raise CheckpointError(
            f"{folder!r} is not on a file system of this machine; give a folder that "
            "it is mounted at, or copied to"
        )
    folder = os.path.abspath(folder)
    try:
        with lease.together():
            return _take(folder, problem)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder!r} does not exist; give the model_dir of a training"
        ) from error
    except NotADirectoryError as error:
        raise CheckpointError(
            f"{folder!r} is no folder; give the model_dir of a training"
        ) from error
    except PermissionError as error:
        raise CheckpointError(
            f"{folder!r} cannot be read: {error.strerror} ({error.filename!r}); run "
            "this as a user who may"
        ) from error
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(
            f"{folder!r} cannot be read: {error.strerror} ({error.filename!r}); check "
            "that its disk or file server is responding"
        ) from error


def _take(folder, problem):
    seen = look_and_hold(folder)
    if not os.listdir(folder):
        raise CheckpointError(
            f"{folder!r} is empty: no training has saved a checkpoint there; is it the "
            "model_dir?"
        )
    dead = {path: _completed(path) for path in filter(lifetime.is_dead, seen.temporary)}
    completed = {each.prefix: each for each in dead.values() if each is not None}
    known: dict[str, str | None] = dict.fromkeys(completed)
    entries, read, unreadable = [], set(), set()
    for each in _found(folder, seen, completed):
        bad = DAMAGED if each.has_index or each.prefix in seen.named else ORPHAN
        with lease.reading(each.prefix):  # a training may be deleting others
            try:
                reason = known[each.prefix] if each.prefix in known else each.problem()
                if reason is None and problem is not None and each.has_index:
                    reason = known[each.prefix] = problem(each.prefix)
                    read.update([each.prefix] if reason is None else [])
            except UnreadableError as error:
                reason, bad = error.reason, UNREADABLE
                unreadable.add(each.prefix)
        if reason is not None and _was_let_go(folder, each):
            continue
        state = GOOD if reason is None else bad
        entries.append(_entry(each, state, reason, each.prefix in read))
    entries += [each for each in map(_temporary, seen.temporary) if each is not None]
    if not entries:
        raise CheckpointError(
            f"{folder!r} has no checkpoints, but other files; is it the model_dir?"
        )
    entries.sort(key=lambda each: (_step(each), each.path))
    entries, total = _without_shared(entries)
    # A restart ends at the first one that it cannot read.
    before = itertools.takewhile(
        lambda each: each.prefix not in unreadable, seen.candidates
    )
    best, _ = dataclasses.replace(seen, candidates=tuple(before)).plan(known)
    adopted = [
        found
        for path, found in dead.items()
        if found is not None
        and known[found.prefix] is None
        and leftovers.would_adopt(path, found, seen.state)
    ]
    best = max(adopted, key=_step, default=best)
    chosen = [each for each in entries if best and each.path == best.prefix]
    good = [each for each in chosen if each.state == GOOD]
    return Inventory(
        folder=folder,
        entries=tuple(entries),
        bytes=total,
        restart=good[0] if good else None,
        state_problem=seen.lost,
    )


def _found(folder, seen, completed):
    """Give each `Checkpoint` that is to be shown."""
    found = {
        each.prefix: each
        for each in seen.found
        if len(each.files) > 1 or not each.has_index  # which may be anybody's file
    }
    for path in seen.named:  # also what lies elsewhere, or has no number
        if path not in found and (files.at(path).files or files.is_in(folder, path)):
            found[path] = files.at(path)
    for path in seen.temporary:
        prefix = leftovers.prefix_of(path)
        there = found.get(prefix)
        is_whole = prefix in seen.named and there is not None and there.has_index
        if not is_whole and not lifetime.is_dead(path):
            found.pop(prefix, None)  # it is being given its names
    return {**found, **completed}.values()


def _completed(path: str) -> files.Checkpoint | None:
    """Return what `leftovers.completed` does; None where its files cannot be read."""
    try:
        return leftovers.completed(path)
    except UnreadableError:
        return None


def _was_let_go(folder, checkpoint):
    """Tell whether a training has deleted a checkpoint while this looked at it."""
    if not checkpoint.has_index or files.at(checkpoint.prefix).has_index:
        return False
    return checkpoint.prefix not in look(folder).named


def _entry(checkpoint, state, reason, is_read=False):
    return Entry(
        path=checkpoint.prefix,
        step=checkpoint.step,
        files=checkpoint.files,
        bytes=checkpoint.bytes,
        own_bytes=checkpoint.bytes,
        saved_at=checkpoint.saved_at,
        state=state,
        reason=reason,
        is_read=is_read,
    )


def _without_shared(entries):
    """Give the entries with `own_bytes` as it is, and the bytes that all of them take.

    A file is shared if it is another entry's too: the graph is the same for all, and
    its .meta files are links.
    """
    sizes: dict[tuple[int, int], int] = {}
    owners: dict[tuple[int, int], set[str]] = {}
    for entry in entries:
        for path in entry.files:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                stat = os.stat(path)
                sizes[stat.st_dev, stat.st_ino] = stat.st_size
                owners.setdefault((stat.st_dev, stat.st_ino), set()).add(entry.path)
    own = dict.fromkeys((each.path for each in entries), 0)
    for file, paths in owners.items():
        if len(paths) == 1:
            own[min(paths)] += sizes[file]
    changed = [dataclasses.replace(each, own_bytes=own[each.path]) for each in entries]
    return changed, sum(sizes.values())


def _temporary(path):
    """Give the entry of what a save has not finished; None if it has, by now."""
    changed_at = lifetime.changed_at(path)
    if changed_at is None:
        return None
    inside = [path]
    if os.path.isdir(path):
        inside += glob.glob(os.path.join(glob.escape(path), "*"))
    reason = "being written"
    if leftovers.is_late(path):
        reason = "names what is deleted when nobody reads it any more"
    elif lifetime.is_dead(path):
        reason = "left by a run that died"
    prefix = leftovers.prefix_of(path)
    held = files.Checkpoint(
        prefix=prefix, files=tuple(each for each in inside if os.path.isfile(each))
    )
    return dataclasses.replace(
        _entry(held, TEMPORARY, reason), path=path, saved_at=changed_at
    )


def _step(entry):
    return -1 if entry.step is None else entry.step
