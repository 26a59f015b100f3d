"""Values in a checkpoint that are NaN, found in its files, without TensorFlow.

A training may save some before it knows that its loss is NaN: of the hooks of a step
the one that saves comes first, and a ps may have them from another trainer.
"""

import logging
import os

import numpy as np

from estimator_runtime.checkpoint import bundle, checksums, newest
from estimator_runtime.checkpoint.look import look
from estimator_runtime.checkpoint.message import DTYPE, SIZE

_logger = logging.getLogger(__name__)
# Of tensorflow.DataType: float, double, half; complex numbers are two of these each.
_FLOATS = {1: "<f4", 2: "<f8", 8: "<f4", 18: "<f8", 19: "<f2"}
_BFLOAT16 = 14  # which numpy does not know
_BFLOAT16_INFINITY = 0x7F80
# Logged before a search, with the folder.
LOOKING = "a loss was NaN: looking for NaN in what %s has saved"


def add_note(error: Exception, folder: str) -> None:
    """Add the newest checkpoint without NaN to what a traceback of `error` shows.

    Python 3.10 has no notes; there it is logged as an error.

    Args:
        error: The error of a loss that was NaN.
        folder: Path of the training's folder, to which nothing is being written.
    """
    if "://" in folder:
        note = newest.as_text(None, unknown=f"as only TensorFlow reads {folder}")
    else:
        folder = os.path.realpath(folder)
        # All of their bytes are read, which may take minutes.
        _logger.warning(LOOKING, folder)
        note = newest.as_text(*newest_good(folder))
    getattr(error, "add_note", _logger.error)(note)


def newest_good(folder: str) -> tuple[str | None, str | None, str | None]:
    """Return the newest checkpoint without NaN, for `newest.as_text`.

    Args:
        folder: Path of a local folder.

    Returns:
        Its path or None, why it is not known or None, and which newer checkpoints have
        NaN and what to do about them, or None.
    """
    try:
        found, spoilt = newest_without(folder)
    except FileNotFoundError:
        return None, None, None
    except (OSError, ValueError) as error:
        return None, f"as it cannot be seen which has NaN: {error}", None
    if not spoilt:
        return found and found.prefix, None, None
    path, name = next(iter(spoilt.items()))
    if found is None:
        # Not known, not lost: what a model has from its start may be NaN on purpose.
        return None, f"as each has NaN: {path} in {name!r}", None
    what, it = f"newer, but with NaN in {name!r}: {path}", "it"
    if len(spoilt) > 1:
        what, it = f"{what}, and {len(spoilt) - 1} before it", "them"
    every_file = " ".join(f"{each}.*" for each in spoilt)
    then = f"move {every_file} away, or training goes on from {it}"
    return found.prefix, None, f"{what}; {then}"


def newest_without(folder):
    """Find the checkpoint to go on from that has no NaN.

    Args:
        folder: Path of a local folder.

    Returns:
        (`Checkpoint` or None, path to the name of a value that is NaN, of each newer
        one that training would go on from).

    Raises:
        OSError: If the folder, or a checkpoint, cannot be read.
    """
    seen = look(folder)
    spoilt: dict[str, str] = {}
    while True:
        best, _ = seen.plan(spoilt)
        name = best and first(best.prefix)
        if name is None:
            return best, spoilt
        spoilt[best.prefix] = name


def first(prefix):
    """Name the first value of a checkpoint that is NaN, or partly; None if none is.

    All of its data is read. One of the V1 format is not looked at.

    Args:
        prefix: Path, without suffix, of a checkpoint whose files are all there.

    Raises:
        OSError: If it cannot be read.
    """
    if not os.path.exists(f"{prefix}.index") and bundle.v1_files(prefix):
        return None
    for key, entry, path in bundle.values(prefix):
        dtype = entry.get(DTYPE)
        if not entry.get(SIZE) or dtype not in (*_FLOATS, _BFLOAT16):
            continue
        if any(map(_is_nan(dtype), bundle.chunks(path, entry))):
            return checksums.name_of(key)
    return None


def _is_nan(dtype):
    """Give a function that tells whether a number of some bytes is NaN."""
    if dtype == _BFLOAT16:
        return lambda data: bool(
            (np.frombuffer(data, "<u2") & 0x7FFF > _BFLOAT16_INFINITY).any()
        )
    return lambda data: bool(np.isnan(np.frombuffer(data, _FLOATS[dtype])).any())
