"""What lies in a model directory, and what a restart would make of it."""

import contextlib
import dataclasses
import os
import time

from estimator_runtime.checkpoint import commit, durable, files, recovery
from estimator_runtime.checkpoint.state import StateError, read_state
from estimator_runtime.errors import CheckpointError

GOOD, DAMAGED, ORPHAN, TEMPORARY = "good", "damaged", "orphan", "temporary"


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
        state: "good"; "damaged", and would be set aside; "orphan", files without an
            index that the state file does not name, which no restart looks at;
            "temporary", what a save has not finished.
        reason: Why it is not good, in a few words; None if it is.
    """

    path: str
    step: int | None
    files: tuple[str, ...]
    bytes: int
    own_bytes: int
    saved_at: float
    state: str
    reason: str | None = None


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
        """The checkpoint of the largest step, good or damaged, or None."""
        found = [each for each in self.entries if each.state in (GOOD, DAMAGED)]
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
        `Inventory`. Nothing is changed. A restart also removes or finishes what dead
        runs left half done; that is taken into account.

    Raises:
        CheckpointError: If there is no such folder, nothing in it, or no checkpoint.
    """
    folder = os.path.abspath(folder)
    try:
        names = sorted(os.listdir(folder))
        return _take(folder, names, problem)
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


def _take(folder, names, problem):
    if not names:
        raise CheckpointError(
            f"{folder!r} is empty: no training has saved a checkpoint there; is it the "
            "model_dir?"
        )
    named = _named(folder)
    known: dict[str, str] = {}
    found = {each.prefix: each for each in files.find(folder)}
    for path in named:  # also what lies elsewhere, or has no number
        if path not in found and (files.at(path).files or _is_in(folder, path)):
            found[path] = files.at(path)
    entries = []
    for each in found.values():
        reason = each.problem()
        if reason is None and problem is not None:
            reason = problem(each.prefix)
            if reason is not None:
                known[each.prefix] = reason
        is_orphan = not each.has_index and each.prefix not in named
        state = ORPHAN if is_orphan else DAMAGED if reason else GOOD
        entries.append(_entry(each, state, reason))
    entries += [_temporary(folder, name) for name in names if commit.is_temporary(name)]
    if not entries:
        raise CheckpointError(
            f"{folder!r} has no checkpoints, but other files; is it the model_dir?"
        )
    entries.sort(key=lambda each: (_step(each), each.path))
    entries, total = _without_shared(entries)
    best, _, lost = recovery.plan(folder, known)
    best = _finished_by_restart(folder, names, known) or best
    used = best and os.path.normpath(best.prefix)
    chosen = [each for each in entries if each.path == used]
    good = [each for each in chosen if each.state == GOOD]
    return Inventory(
        folder=folder,
        entries=tuple(entries),
        bytes=total,
        restart=good[0] if good else None,
        state_problem=lost,
    )


def _named(folder):
    try:
        state = read_state(folder)
    except StateError:
        return ()
    paths = () if state is None else (*state.paths, state.latest)
    return tuple(dict.fromkeys(map(os.path.normpath, paths)))


def _is_in(folder, path):
    return os.path.dirname(os.path.abspath(path)) == folder


def _finished_by_restart(folder, names, known):
    """Give the checkpoint that was complete when its run died, short of its name."""
    for name in names:
        path = os.path.join(folder, name)
        if not durable.owner(name) or commit.is_late(path):
            continue
        if commit.is_dead(name, path):
            prefix = os.path.join(folder, name.rpartition(".saving-")[0][1:])
            checkpoint = files.at(prefix)
            is_new = checkpoint.has_index and prefix not in _named(folder)
            if is_new and prefix not in known and checkpoint.problem() is None:
                return checkpoint
    return None


def _entry(checkpoint, state, reason):
    return Entry(
        path=checkpoint.prefix,
        step=checkpoint.step,
        files=checkpoint.files,
        bytes=checkpoint.bytes,
        own_bytes=checkpoint.bytes,
        saved_at=checkpoint.saved_at,
        state=state,
        reason=reason,
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


def _temporary(folder, name):
    path = os.path.join(folder, name)
    inside = [path]
    if os.path.isdir(path):
        inside += [os.path.join(path, each) for each in os.listdir(path)]
    inside_files = tuple(each for each in inside if os.path.isfile(each))
    size = sum(os.path.getsize(each) for each in inside_files)
    reason = "being written"
    if commit.is_late(path):
        reason = "names what is deleted when nobody reads it any more"
    elif commit.is_dead(name, path, time.time):
        reason = "left by a run that died"
    stem = name.rpartition(".saving-")[0] or name.partition("_temp")[0]
    return Entry(
        path=path,
        step=files.step_of(stem),
        files=inside_files,
        bytes=size,
        own_bytes=size,
        saved_at=max(os.path.getmtime(each) for each in inside),
        state=TEMPORARY,
        reason=reason,
    )


def _step(entry):
    return -1 if entry.step is None else entry.step
