"""What a restart finds in a folder: the checkpoints that it could go on from."""

import dataclasses
import os
import time
from collections.abc import Iterable

from estimator_runtime.checkpoint import files, lease, leftovers
from estimator_runtime.checkpoint.reading import UnreadableError
from estimator_runtime.checkpoint.state import State, StateError, read_state

# What TensorFlow's hooks call their checkpoints, unless a program says otherwise.
USUAL_SERIES = "model.ckpt"
# From when a training decides to delete a checkpoint until its state file says so.
_LET_GO_SECS, _LOOK_AGAIN_SECS = 5.0, 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """What a restart finds in a folder.

    Attributes:
        found: Each `Checkpoint` in it, also other models', oldest step first.
        temporary: Paths of what saves have not finished; see `leftovers`.
        state: `State`, with paths in the folder for what lies there; None without one.
        lost: What is wrong with the state file, or None.
        candidates: Each `Checkpoint` that training could go on from, in this order.
    """

    found: tuple[files.Checkpoint, ...]
    temporary: tuple[str, ...]
    state: State | None
    lost: str | None
    candidates: tuple[files.Checkpoint, ...]

    @property
    def named(self):
        """Paths that the state file names, without suffix, the newest last."""
        if self.state is None:
            return ()
        paths = dict.fromkeys((*self.state.paths, self.state.latest))
        return tuple(paths)

    def plan(self, known=()):
        """Choose the checkpoint that training would go on from.

        Args:
            known: Path to what is wrong with it, of checkpoints that have been looked
                at; None for what is good.

        Returns:
            (`Checkpoint` or None, path to what is wrong with it of each checkpoint that
            would be passed over).

        Raises:
            UnreadableError: If a file cannot be read that has to be checked for that.
        """
        known = dict(known)
        bad: dict[str, str] = {}
        for each in self.candidates:
            is_known = each.prefix in known
            reason = known[each.prefix] if is_known else each.problem()
            if reason is None:
                return each, bad
            bad[each.prefix] = reason
        return None, bad


def look(folder):
    """Look what is in a folder; change nothing.

    Args:
        folder: Path of the folder.

    Returns:
        `Look`.

    Raises:
        OSError: If the folder cannot be read.
    """
    # In this order: what a save gives its names meanwhile is either still temporary
    # then, or named.
    found = tuple(files.find(folder))
    temporary = tuple(leftovers.temporaries(folder))
    lost = None
    try:
        state = read_state(folder)
    except StateError as error:
        state, lost = None, f"the state file {error}"
    if state is not None:
        elsewhere = [
            os.path.dirname(path)
            for path in (state.latest, *state.paths)
            if not files.is_in(folder, path)
        ]
        state = _in_place(folder, state)
        # A checkpoint elsewhere may be what the user wants to start from.
        if elsewhere and files.is_in(folder, state.latest):
            lost = f"the state file is that of another folder, {elsewhere[0]}"
    candidates = tuple(_candidates(folder, state, found))
    if state is not None:
        absent = _absent_name(state, temporary)
        if absent is not None:
            lost = f"the state file names {absent!r}, which is not there"
        # With nothing else to go on from, the error is about the one that is named.
        if absent == state.latest:
            candidates = candidates[1:] or candidates
    if state is None and lost is None and candidates:
        lost = "the state file is missing"
    return Look(
        found=found,
        temporary=temporary,
        state=state,
        lost=lost,
        candidates=candidates,
    )


def look_and_hold(folder):
    """Look, and keep what a restart would go on from, for as long as it is looked at.

    Args:
        folder: Path of the folder.

    Returns:
        `Look`; what it is about is held until the end of the `lease.together` around.

    Raises:
        OSError: If the folder cannot be read.
    """
    deadline = time.monotonic() + _LET_GO_SECS
    while True:
        seen = look(folder)
        try:
            best, _ = seen.plan()
        except UnreadableError:  # whoever looks at each checkpoint finds that out again
            return seen
        is_there = best is None or not best.has_index or lease.hold(best.prefix)
        if is_there or time.monotonic() > deadline:
            return seen
        # A training lets go of it: then the state file names another one soon.
        time.sleep(_LOOK_AGAIN_SECS)


def _in_place(folder, state):
    """Give a state as it is for a folder that was copied or moved."""
    return dataclasses.replace(
        state,
        latest=files.here(folder, state.latest),
        paths=tuple(files.here(folder, path) for path in state.paths),
    )


def _candidates(folder, state, found):
    """Give checkpoints in the order in which training would go on from them.

    They are of the model that the state file names, or, without one, of the model that
    has most of them: other checkpoints may lie beside them, to warm-start from.
    """
    named = () if state is None else (state.latest, *state.paths)
    whole = [each for each in found if _is_one(each, named)]
    if state is None:
        series = _main_series(whole)
        return [
            each for each in reversed(whole) if files.series_of(each.prefix) == series
        ]
    series = files.series_of(state.latest)
    others = {
        each.prefix: each for each in whole if files.series_of(each.prefix) == series
    }
    for path in state.paths:  # also what has no number
        if path not in others and files.is_in(folder, path):
            others[path] = files.at(path)
    others.pop(state.latest, None)
    newest_first = sorted(
        (each for each in others.values() if each.files),
        key=lambda each: -1 if each.step is None else each.step,
        reverse=True,
    )
    latest = files.at(state.latest)
    if not latest.files and not newest_first:
        newest_first = _candidates(folder, None, found)
    return [latest, *newest_first]


def _absent_name(state: State, temporary: Iterable[str]) -> str | None:
    """Return a path that a state file names in vain, if it cannot stay as it is.

    Those of older checkpoints may be gone. But a pattern among them would let a Saver
    delete each checkpoint that it matches.
    """
    coming = set(map(leftovers.prefix_of, temporary))
    for path in (state.latest, *state.paths):
        is_telling = path == state.latest or files.PATTERN.search(path)
        if is_telling and path not in coming and not files.at(path).files:
            return path
    return None


def _is_one(found, named):
    """Tell whether files are those of a checkpoint that a save has completed.

    Anybody's file may be called NAME-NUMBER.index.
    """
    has_company = len(found.files) > 1 or found.prefix in named
    return found.is_v1 or (found.has_index and has_company)


def _main_series(found):
    names = [files.series_of(each.prefix) for each in found]
    if USUAL_SERIES in names:
        return USUAL_SERIES
    return max(names, key=names.count, default=None)
