"""NaN scan: find NaN values in the files of a checkpoint, without TensorFlow.

A training may save NaN values before it detects that its loss is NaN. In each step, the
hook that saves runs before the one that checks the loss. A ps may also have received
NaN values from another trainer.
"""

import logging
import os
from collections.abc import Callable

import numpy as np

from estimator_runtime.checkpoint.checkpoint import Checkpoint
from estimator_runtime.checkpoint.restore.recovery import newest_as_text, scan
from estimator_runtime.checkpoint.tensor_bundle import checksums, index
from estimator_runtime.config.paths import is_local

_logger = logging.getLogger(__name__)
# Float, double and half of tensorflow.DataType. A complex number is a pair of these.
_FLOATS = {1: "<f4", 2: "<f8", 8: "<f4", 18: "<f8", 19: "<f2"}
_BFLOAT16 = 14  # numpy has no such type
_BFLOAT16_INFINITY = 0x7F80
_REMEDY = (
    "To try: a lower learning rate, clipped gradients (tf.clip_by_global_norm), or a "
    "check of the input for NaN and of the loss for log(0) and divisions by 0"
)
# Logged before a search; takes the folder.
LOOKING = "a loss was NaN: searching the checkpoints in %s for NaN"


def add_note(error: Exception, folder: str | None, step: int | None) -> None:
    """Add a note to an exception: the step, the newest good checkpoint, what to try.

    Python 3.10 has no notes. There, the text is logged as an error.

    Args:
        error: The exception that a NaN loss has raised.
        folder: The model directory. Nothing may write to it meanwhile. None if a
            launcher searches it, and the note has no checkpoint.
        step: The global step after the NaN, or None if unknown. Under a launcher,
            other trainers may have added steps since.
    """
    if folder is None:
        note = ""
    elif not is_local(folder):
        note = newest_as_text(None, unknown=f"as only TensorFlow reads {folder}")
    else:
        folder = os.path.realpath(folder)
        # The search reads all of the data, which may take minutes.
        _logger.warning(LOOKING, folder)
        note = newest_as_text(*newest_good(folder))
    preposition = "by" if folder is None else "at"
    at_step = "" if step is None else f" {preposition} step {step}"
    lines = [each[:1].upper() + each[1:] for each in note.splitlines()]
    note = ". ".join([f"The loss is NaN{at_step}", *lines, _REMEDY])
    getattr(error, "add_note", _logger.error)(note)


def newest_good(folder: str) -> tuple[str | None, str | None, str | None]:
    """Return the newest checkpoint without NaN, for `newest_as_text`.

    Returns:
        A tuple of the checkpoint's path or None, why the path is unknown or None, and
        which newer checkpoints have NaN and what to do about them, or None.
    """
    try:
        found, spoilt = newest_without(folder)
    except FileNotFoundError:
        return None, None, None
    except (OSError, ValueError) as error:
        return None, f"as the checkpoints cannot be searched for NaN: {error}", None
    if not spoilt:
        return found.prefix if found else None, None, None
    path, name = next(iter(spoilt.items()))
    if found is None:
        # Unknown rather than lost: a model may start with NaN values on purpose.
        return None, f"as each has NaN: {path} in {name!r}", None
    what, it = f"newer, but with NaN in {name!r}: {path}", "it"
    if len(spoilt) > 1:
        what, it = f"{what}, and {len(spoilt) - 1} before it", "them"
    every_file = " ".join(f"{each}.*" for each in spoilt)
    then = f"move {every_file} away, or training goes on from {it}"
    return found.prefix, None, f"{what}; {then}"


def newest_without(folder: str) -> tuple[Checkpoint | None, dict[str, str]]:
    """Return the newest checkpoint to resume from that has no NaN.

    Returns:
        A tuple of the checkpoint or None, and the newer checkpoints with NaN that
        training would resume from (path to the name of the first such value).

    Raises:
        OSError: If the folder, or a checkpoint, cannot be read.
    """
    seen = scan(folder)
    spoilt: dict[str, str] = {}
    while True:
        best, _ = seen.plan(spoilt)
        name = None if best is None else first(best.prefix)
        if best is None or name is None:
            return best, spoilt
        spoilt[best.prefix] = name


def first(prefix: str) -> str | None:
    """Return the name of the first value of a checkpoint that contains NaN, or None.

    This reads all of the data. It skips checkpoints in the V1 format.

    Args:
        prefix: Path, without suffix, of a checkpoint whose files all exist.

    Raises:
        OSError: If the checkpoint cannot be read.
    """
    for key, entry, path in index.values(prefix):
        is_float = entry.dtype in (*_FLOATS, _BFLOAT16)
        if is_float and any(map(_is_nan(entry.dtype), index.chunks(path, entry))):
            return checksums.name_of(key)
    return None


def _is_nan(dtype: int) -> Callable[[bytes], bool]:
    """Return a function that returns whether any number in some bytes is NaN."""
    if dtype == _BFLOAT16:
        return lambda data: bool(
            (np.frombuffer(data, "<u2") & 0x7FFF > _BFLOAT16_INFINITY).any()
        )
    return lambda data: bool(np.isnan(np.frombuffer(data, _FLOATS[dtype])).any())
