"""Recovery: find and check the checkpoint to resume from, before training starts.

A damaged checkpoint is set aside, and a lost state file is rebuilt. If there are
checkpoints but none can be used, training does not start: it would begin at step 0 and
overwrite what is left.
"""

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from estimator_runtime.checkpoint.checkpoint import (
    Checkpoint,
    checkpoints_in,
    is_in,
    series_of,
)
from estimator_runtime.checkpoint.store import cleanup, locks
from estimator_runtime.checkpoint.store.state_file import (
    STATE_FILE,
    State,
    StateError,
    read_state,
    write_state,
)
from estimator_runtime.checkpoint.tensor_bundle.reading import UnreadableError
from estimator_runtime.config import paths
from estimator_runtime.errors import CheckpointError
from estimator_runtime.output.terminal import printable

_logger = logging.getLogger(__name__)
_LONG_AGO = 1.0  # in seconds since 1970; 0 would mean that no time is known
# The name of checkpoints that TensorFlow's hooks save, unless a program sets another.
USUAL_SERIES = "model.ckpt"
# A training marks a checkpoint for deletion before its state file names another one.
# This is how long that may take.
_LET_GO_SECS, _RETRY_SECS = 5.0, 0.05


def recover(folder: str) -> Checkpoint | None:
    """Prepare a folder so that training can resume in it.

    The checkpoint that the state file names is used if it is good; otherwise, the
    newest good one is used. The process that trains calls this before it restores. No
    other process may write to the folder meanwhile.

    Returns:
        The checkpoint that the state file names now, or None if the folder has none.

    Raises:
        CheckpointError: If the folder has checkpoints, but none can be used.
    """
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        return None
    with _explained(folder):
        cleanup.put_back(folder)
        best = _recover(folder, scan(folder))
        cleanup.remove_leftovers(folder)
        return best


def set_aside_latest(folder: str, reason: str) -> Checkpoint | None:
    """Set the state file's checkpoint aside and go back to an earlier one.

    Args:
        folder: Path of a local folder.
        reason: What is wrong with the checkpoint, for the log.

    Returns:
        The checkpoint that the state file names now, or None if the folder has none any
        more.

    Raises:
        CheckpointError: If no other checkpoint can be used.
    """
    folder = os.path.abspath(folder)
    with _explained(folder):
        seen = scan(folder)
        latest = seen.candidates[:1]
        return _recover(folder, seen, {each.prefix: reason for each in latest})


def refuse_to_start_over(folder: str, what: str = "training would start over") -> None:
    """Raise if the folder has a usable checkpoint but the session restored none.

    Call this before you initialize a new session. Only one series of checkpoints
    counts: the one that the state file names, or, if that cannot be read, the one that
    TensorFlow's hooks save. Others may be there for another purpose and are left alone.

    `folder` need not exist; `what` is what would happen, for the error.

    Raises:
        CheckpointError: If there is a usable checkpoint, or the folder cannot be read.
    """
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        return
    with _explained(folder):
        seen = scan(folder)
        best, _ = seen.plan()
    series = series_of(seen.state.latest) if seen.state else USUAL_SERIES
    if best is None or best.series != series:
        return
    why = f" ({seen.lost})" if seen.lost else ""
    raise CheckpointError(
        f"{what} in {folder!r}, although {best.prefix} is good: "
        f"TensorFlow found no checkpoint to restore there{why} and was about to "
        "initialize the model. To resume from it, replace the contents of "
        f"{STATE_FILE!r} in that folder with the line `model_checkpoint_path: "
        f'"{os.path.basename(best.prefix)}"`; to train from the start, give an empty '
        "folder"
    )


def newest_as_text(
    path: str | None, unknown: str | None = None, spoilt: str | None = None
) -> str:
    """Return the message about the newest good checkpoint, on one or two lines.

    Args:
        path: Path of the checkpoint, or None.
        unknown: Why the path is unknown, or None.
        spoilt: Which newer checkpoints are unusable and why, or None.
    """
    if path is not None:
        line = f"newest good checkpoint: {path}"
        return f"{line}\n{spoilt}" if spoilt else line
    if unknown is not None:
        return f"newest good checkpoint: not known here, {unknown}"
    return "no checkpoint was saved"


@contextlib.contextmanager
def _explained(folder: str) -> Iterator[None]:
    """Raise errors of a folder that cannot be read or changed with a remedy."""
    try:
        yield
    except CheckpointError:
        raise  # names a file that cannot be read, and the remedy
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints in {folder!r} cannot be checked: "
            f"{error.strerror or error} ({error.filename!r}); grant this process "
            "read and write permission, or give another folder"
        ) from error


def _set_state_file_aside(path: str) -> None:
    """Rename a state file that cannot be read, in a folder without checkpoints.

    TensorFlow would wait for ever if it is a named pipe.

    Raises:
        CheckpointError: If it is a folder.
    """
    if os.path.isdir(path):
        raise CheckpointError(f"{path!r} is a folder; move it away")
    _logger.warning(
        "%s cannot be read and is renamed to %s.unreadable; there is no checkpoint "
        "beside it",
        path,
        path,
    )
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        os.replace(path, f"{path}.unreadable")


def _recover(
    folder: str, seen: "FolderScan", known: Mapping[str, str | None] | None = None
) -> Checkpoint | None:
    best, bad = seen.plan(known)
    if best is None and not bad:
        if seen.lost and seen.state is None:
            _set_state_file_aside(os.path.join(folder, STATE_FILE))
        return None
    shown = "; ".join(f"{path}: {reason}" for path, reason in bad.items())
    if best is None:
        raise CheckpointError(
            f"none of the checkpoints in {folder!r} can be used ({shown}); bring a "
            "good one back, or move these away to train from the start"
        )
    if not bad and not seen.lost:
        return best
    # This may fail, so it comes before anything is moved.
    state = _state_of(folder, seen, best, bad)
    for path in bad:
        # A checkpoint in another folder does not belong to this training.
        if is_in(folder, path):
            Checkpoint.at(path).set_aside()
    write_state(folder, state)
    _logger.warning(
        "Training goes on from %s, because %s.%s",
        best.prefix,
        printable("; ".join(filter(None, (seen.lost, shown)))),
        " Damaged files are kept in 'damaged' beside it." if bad else "",
    )
    return best


def _state_of(
    folder: str, seen: "FolderScan", best: Checkpoint, bad: Iterable[str]
) -> State:
    """Return a state file content that names `best` and leads to no unwanted deletion.

    A checkpoint that the state file names is deleted once enough newer ones exist. So
    the new file names, beside `best`, only those that the old file named and that are
    not known to be bad.
    """
    state = seen.state
    named, preserved = (state.paths, state.last_preserved) if state else ((), None)
    # `Checkpoint.at` lists the folder, which may have thousands of checkpoints.
    found = {each.prefix: each for each in seen.found}
    older = [
        found.get(path) or Checkpoint.at(path)
        for path in named
        if path not in (best.prefix, *bad) and is_in(folder, path)
    ]
    kept = [*filter(_may_be_good, older), best]
    return State(
        latest=best.prefix,
        paths=tuple(each.prefix for each in kept),
        timestamps=tuple(each.saved_at for each in kept),
        # With a time this early, a checkpoint that was to stay for good still does.
        last_preserved=preserved if best.prefix in named else _LONG_AGO,
    )


def _may_be_good(checkpoint: Checkpoint) -> bool:
    try:
        return checkpoint.problem() is None
    except UnreadableError:
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderScan:
    """What a restart finds in a folder.

    Attributes:
        found: All checkpoints in it, including those of other models, smallest
            step first.
        temporary: Paths of unfinished saves; see `cleanup`.
        state: The content of the state file, or None. Paths of checkpoints in the
            folder are those of the folder, even if it was moved or copied.
        lost: What is wrong with the state file, or None.
        candidates: The checkpoints that training could resume from, best first.
    """

    found: tuple[Checkpoint, ...]
    temporary: tuple[str, ...]
    state: State | None
    lost: str | None
    candidates: tuple[Checkpoint, ...]

    @property
    def latest(self) -> str | None:
        """Path that the state file names as that of the newest, without suffix."""
        return None if self.state is None else self.state.latest

    @property
    def named(self) -> tuple[str, ...]:
        """Paths that the state file names, without suffix, the newest last."""
        if self.state is None:
            return ()
        return tuple(dict.fromkeys((*self.state.paths, self.state.latest)))

    def plan(
        self, known: Mapping[str, str | None] | None = None
    ) -> tuple[Checkpoint | None, dict[str, str]]:
        """Choose the checkpoint that training would resume from.

        Args:
            known: Checkpoints that were checked before: path to what is wrong with it,
                or to None if it is good.

        Returns:
            A tuple of the checkpoint or None, and the checkpoints that would be skipped
            (path to what is wrong with it).

        Raises:
            UnreadableError: If a checkpoint has to be checked but cannot be read.
        """
        known = known or {}
        bad: dict[str, str] = {}
        for each in self.candidates:
            is_known = each.prefix in known
            reason = known[each.prefix] if is_known else each.problem()
            if reason is None:
                return each, bad
            bad[each.prefix] = reason
        return None, bad


def _state_here(folder: str, state: State) -> tuple[State, str | None]:
    """Return a state with the folder's own paths, and what is wrong with it or None.

    The folder may have been copied or moved.
    """
    paths = (state.latest, *state.paths)
    latest, *others = (_here(folder, path) for path in paths)
    here = dataclasses.replace(state, latest=latest, paths=tuple(others))
    elsewhere = [path for path in paths if not is_in(folder, path)]
    # A checkpoint elsewhere may be one that the user wants to start from.
    if not elsewhere or not is_in(folder, latest):
        return here, None
    other = os.path.dirname(elsewhere[0])
    return here, f"the state file is that of another folder, {other}"


def scan(folder: str) -> FolderScan:
    """Return what a restart finds in a folder, without changing anything.

    Raises:
        OSError: If the folder cannot be read.
    """
    # The order matters. If a save renames its files meanwhile, they are still listed
    # as temporary, or the state file names them.
    found = tuple(checkpoints_in(folder))
    temporary = tuple(cleanup.temporaries(folder))
    lost = None
    try:
        state = read_state(folder)
    except StateError as error:
        state, lost = None, f"the state file {error}"
    if state is not None:
        state, lost = _state_here(folder, state)
    candidates = tuple(_candidates(folder, state, found))
    if state is not None:
        absent = _absent_name(state, temporary)
        if absent is not None:
            lost = f"the state file names {absent!r}, which is not there"
        # Without other candidates, the error is about the one that is named.
        if absent == state.latest:
            candidates = candidates[1:] or candidates
    elif lost is None and candidates:
        lost = "the state file is missing"
    return FolderScan(
        found=found,
        temporary=temporary,
        state=state,
        lost=lost,
        candidates=candidates,
    )


def scan_and_hold(folder: str) -> FolderScan:
    """Return what a restart finds, and lock the checkpoint that it would resume from.

    The checkpoint is not deleted before the end of the enclosing `locks.together`.

    Raises:
        OSError: If the folder cannot be read.
    """
    deadline = time.monotonic() + _LET_GO_SECS
    while True:
        seen = scan(folder)
        try:
            best, _ = seen.plan()
        except UnreadableError:  # the caller sees it when it checks each checkpoint
            return seen
        is_there = best is None or not best.has_index or locks.hold(best.prefix)
        if is_there or time.monotonic() > deadline:
            return seen
        # A training is deleting it, and its state file will soon name another one.
        time.sleep(_RETRY_SECS)


def _here(folder: str, prefix: str) -> str:
    """Return a checkpoint's path in a folder, or `prefix` if it is not there.

    After a folder was copied or moved, its state file may still name the old place. A
    checkpoint in the folder takes precedence over one elsewhere.
    """
    inside = os.path.join(folder, os.path.basename(prefix))
    return inside if is_in(folder, prefix) or Checkpoint.at(inside).files else prefix


def _candidates(
    folder: str, state: State | None, found: Sequence[Checkpoint]
) -> list[Checkpoint]:
    """Return the checkpoints that training could resume from, best first.

    They belong to the model that the state file names. Without a state file, they
    belong to the model with the most checkpoints. Other checkpoints may be in the
    folder for a warm start.
    """
    whole = _whole(found, () if state is None else (state.latest, *state.paths))
    if state is None:
        return _of_main_series(whole)
    newest_first = _others(folder, state, whole)
    latest = Checkpoint.at(state.latest)
    if not latest.files:  # what the file says of others may be as wrong
        listed = {each.prefix for each in newest_first}
        rest = _of_main_series(_whole(found, ()))
        newest_first += [each for each in rest if each.prefix not in listed]
    return [latest, *newest_first]


def _whole(found: Sequence[Checkpoint], named: Sequence[str]) -> list[Checkpoint]:
    """Return the checkpoints that have their files."""
    # A lone file NAME-NUMBER.index may belong to another program.
    return [
        each
        for each in found
        if each.is_v1
        or (each.has_index and (len(each.files) > 1 or each.prefix in named))
    ]


def _of_main_series(whole: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints of the usual series, or else of the largest one."""
    names = [each.series for each in whole]
    is_usual = USUAL_SERIES in names
    main = USUAL_SERIES if is_usual else max(names, key=names.count, default=None)
    return [each for each in reversed(whole) if each.series == main]


def _others(folder: str, state: State, whole: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints beside the latest one of a state file, newest first."""
    series = series_of(state.latest)
    others = {each.prefix: each for each in whole if each.series == series}
    for path in state.paths:  # includes names without a number
        if path not in others and is_in(folder, path):
            others[path] = Checkpoint.at(path)
    others.pop(state.latest, None)
    return sorted(
        (each for each in others.values() if each.files),
        key=lambda each: -1 if each.step is None else each.step,
        reverse=True,
    )


def _absent_name(state: State, temporary: Iterable[str]) -> str | None:
    """Return a path of a missing checkpoint that makes a state file unusable, or None.

    Older checkpoints may be missing. But if the path of an older one is a pattern, a
    Saver would delete every checkpoint that matches. What an unfinished save writes is
    not missing.
    """
    coming = set(map(cleanup.prefix_of, temporary))
    for path in (state.latest, *state.paths):
        is_fatal = path == state.latest or paths.PATTERN.search(path)
        if is_fatal and path not in coming and not Checkpoint.at(path).files:
            return path
    return None
