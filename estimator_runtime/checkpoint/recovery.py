"""Which checkpoint training goes on from, found before anything trusts it.

A damaged checkpoint is set aside, a state file that is lost is made again, and where
checkpoints are but none can be used, training does not start: it would start over and
write over what is left.
"""

import contextlib
import logging
import os
from collections.abc import Iterable

from estimator_runtime.checkpoint import files, leftovers
from estimator_runtime.checkpoint.look import USUAL_SERIES, look
from estimator_runtime.checkpoint.reading import UnreadableError
from estimator_runtime.checkpoint.state import STATE_FILE, State, write_state
from estimator_runtime.errors import CheckpointError

_logger = logging.getLogger(__name__)
_LONG_AGO = 1.0  # in seconds since 1970; 0 would mean that no time is known


def recover(folder):
    """Make a folder ready for training to go on in it.

    The state file's checkpoint is used if it is good; else the newest one that is.
    The process that trains calls this, before it restores; nobody else writes to the
    folder meanwhile.

    Args:
        folder: Path of a local folder; it need not exist.

    Returns:
        `Checkpoint` that the state file names now, or None if the folder has none.

    Raises:
        CheckpointError: If it has checkpoints, but none can be used.
    """
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        return None
    with _told(folder):
        leftovers.finish_dead(folder)
        return _recover(folder, look(folder))


def set_aside_latest(folder, reason):
    """Set the state file's checkpoint aside and go back to one before it.

    Args:
        folder: Path of a local folder.
        reason: What is wrong with the checkpoint, for the log.

    Returns:
        `Checkpoint` that the state file names now.

    Raises:
        CheckpointError: If no other checkpoint can be used.
    """
    folder = os.path.abspath(folder)
    with _told(folder):
        seen = look(folder)
        latest = seen.candidates[:1]
        return _recover(folder, seen, {each.prefix: reason for each in latest})


def refuse_to_start_over(folder: str) -> None:
    """Raise if the folder has a usable checkpoint but the session restored none.

    Whoever made the session calls this before initializing it. Checkpoints of another
    series than the one the state file names, or than TensorFlow's hooks save if it
    cannot be read, may be there for another purpose and are left alone.

    Args:
        folder: Path of a local folder; it need not exist.

    Raises:
        CheckpointError: If there is one, or if the folder cannot be read.
    """
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        return
    with _told(folder):
        seen = look(folder)
        best, _ = seen.plan()
    series = files.series_of(seen.state.latest) if seen.state else USUAL_SERIES
    if best is None or files.series_of(best.prefix) != series:
        return
    why = f" ({seen.lost})" if seen.lost else ""
    raise CheckpointError(
        f"training would start over in {folder!r}, although {best.prefix} is good: "
        f"TensorFlow found no checkpoint to restore there{why} and was about to "
        "initialize the model. To resume from it, replace the contents of "
        f"{STATE_FILE!r} in that folder with the line `model_checkpoint_path: "
        f'"{os.path.basename(best.prefix)}"`; to train from the start, give an empty '
        "folder"
    )


def plan(folder):
    """Look which checkpoint training would go on from; change nothing.

    Args:
        folder: Path of the folder.

    Returns:
        (`Checkpoint` or None, path to what is wrong with it of each checkpoint that
        would be passed over, what is wrong with the state file or None).
    """
    seen = look(folder)
    return *seen.plan(), seen.lost


@contextlib.contextmanager
def _told(folder):
    """Say what is to be done about a folder that cannot be read or changed."""
    try:
        yield
    except CheckpointError:
        raise  # names a file that cannot be read, and what to do about it
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints in {folder!r} cannot be looked at: "
            f"{error.strerror or error} ({error.filename!r}); grant this process "
            "read and write permission, or give another folder"
        ) from error


def _recover(folder, seen, known=()):
    best, bad = seen.plan(known)
    if best is None and not bad:
        return None
    shown = "; ".join(f"{path}: {reason}" for path, reason in bad.items())
    if best is None:
        raise CheckpointError(
            f"none of the checkpoints in {folder!r} can be used ({shown}); bring a "
            "good one back, or move these away to train from the start"
        )
    if not bad and not seen.lost:
        return best
    # Before anything is moved: this may fail, and then all stays as it was.
    state = _state_of(folder, seen.state, best, bad)
    for path in bad:
        # What lies elsewhere belongs to somebody else.
        if files.is_in(folder, path):
            files.set_aside(files.at(path))
    write_state(folder, state)
    _logger.warning(
        "Training goes on from %s, because %s.%s",
        best.prefix,
        "; ".join(filter(None, (seen.lost, shown))),
        " What is damaged is kept in 'damaged' beside it." if bad else "",
    )
    return best


def _state_of(
    folder: str, state: State | None, best: files.Checkpoint, bad: Iterable[str]
) -> State:
    """Return the state that names `best`, and lets go of nothing that was to stay.

    What a state file names is deleted when enough newer ones have come. So this one
    names, beside `best`, only what the old one did and what is not known to be bad.
    """
    named, preserved = (state.paths, state.last_preserved) if state else ((), None)
    older = [files.at(path) for path in named if path not in (best.prefix, *bad)]
    good = [
        each
        for each in older
        if files.is_in(folder, each.prefix) and _may_be_good(each)
    ]
    kept = [*good, best]
    return State(
        latest=best.prefix,
        paths=tuple(each.prefix for each in kept),
        timestamps=tuple(each.saved_at for each in kept),
        # With a time that long ago, one that was to stay for good does so again.
        last_preserved=preserved if best.prefix in named else _LONG_AGO,
    )


def _may_be_good(checkpoint: files.Checkpoint) -> bool:
    try:
        return checkpoint.problem() is None
    except UnreadableError:
        return True
