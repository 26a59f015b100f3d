"""Which checkpoint training goes on from, found before anything trusts it.

A damaged checkpoint is set aside, a state file that is lost is made again, and where
checkpoints are but none can be used, training does not start: it would start over and
write over what is left.
"""

import logging
import os

from estimator_runtime.checkpoint import commit, files
from estimator_runtime.checkpoint.state import (
    State,
    StateError,
    read_state,
    write_state,
)
from estimator_runtime.errors import CheckpointError

_logger = logging.getLogger(__name__)


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
    try:
        commit.finish_dead(folder)
        return _recover(folder)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints in {folder!r} cannot be looked at: "
            f"{error.strerror or error} ({error.filename!r}); give this process the "
            "permission, or another folder"
        ) from error


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
    return _recover(folder, {read_state(folder).latest: reason})


def plan(folder, known=()):
    """Look which checkpoint training would go on from; change nothing.

    Args:
        folder: Path of the folder.
        known: Path to what is wrong with it, of checkpoints that only look good.

    Returns:
        (`Checkpoint` or None, path to what is wrong with it of each checkpoint that
        would be passed over, what is wrong with the state file or None).
    """
    known = dict(known)
    try:
        state, lost = read_state(folder), None
    except StateError as error:
        state, lost = None, f"the state file {error}"
    found = files.find(folder)
    if state is None and lost is None and found:
        lost = "the state file is missing"
    bad: dict[str, str] = {}
    for candidate in _candidates(folder, state, found):
        reason = known.get(candidate.prefix) or candidate.problem()
        if reason is None:
            return candidate, bad, lost
        bad[candidate.prefix] = reason
    return None, bad, lost


def _candidates(folder, state, found):
    """Give checkpoints in the order in which training would go on from them."""
    candidates = [each for each in reversed(found) if each.has_index or state is None]
    if state is None:
        return candidates
    named = files.at(state.latest)
    if not named.files:  # the folder was moved, and its old path written down
        named = files.at(os.path.join(folder, os.path.basename(state.latest)))
    return [named, *(each for each in candidates if each.prefix != named.prefix)]


def _recover(folder, known=()):
    best, bad, lost = plan(folder, known)
    if best is None and not bad:
        return None
    shown = "; ".join(f"{path}: {reason}" for path, reason in bad.items())
    if best is None:
        raise CheckpointError(
            f"none of the checkpoints in {folder!r} can be used ({shown}); bring a "
            "good one back, or move these away to train from the start"
        )
    if not bad and not lost:
        return best
    for path in bad:
        # What lies elsewhere belongs to somebody else.
        if os.path.dirname(path) == folder:
            files.set_aside(files.at(path))
    good = [
        each
        for each in files.find(folder)
        if each.step is not None
        and each.prefix != best.prefix
        and each.step < (best.step if best.step is not None else 0)
        and each.problem() is None
    ]
    kept = [*good, best]
    state = State(
        latest=best.prefix,
        paths=tuple(each.prefix for each in kept),
        timestamps=tuple(each.saved_at for each in kept),
    )
    write_state(folder, state)
    _logger.warning(
        "Training goes on from %s, because %s. What is damaged is kept in 'damaged' "
        "beside it.",
        best.prefix,
        "; ".join(filter(None, (lost, shown))),
    )
    return best
