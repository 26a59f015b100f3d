"""Checks the checksums of the values in a checkpoint.

TensorFlow stores a crc32c with each value, and checks it when it reads the value. This
module checks it without TensorFlow, whose import takes longer.
"""

import math
import os
from typing import Any

from crc32c import crc32c

from estimator_runtime.checkpoint.tensor_bundle import index
from estimator_runtime.checkpoint.tensor_bundle.reading import UnreadableError
from estimator_runtime.checkpoint.tensor_bundle.table import (
    TableError,
    decode_varint,
    masked,
)

_STRING, _VARIANT = 7, 21  # of tensorflow.DataType


def problem(prefix: str) -> str | None:
    """Return what is wrong with the data of a checkpoint, in a few words, or None.

    All of the data is read. Values of variant type and checkpoints of the V1 format are
    not checked.

    Args:
        prefix: Path of a checkpoint whose index is good, without suffix.

    Returns:
        The problem of the first value with a wrong checksum; None if all are right.

    Raises:
        UnreadableError: If a file cannot be read. The checkpoint may still be good.
    """
    try:
        for key, entry, path in index.values(prefix):
            reason = _problem(key, entry, path)
            if reason is not None:
                return reason
    except (FileNotFoundError, NotADirectoryError) as error:
        return f"{os.path.basename(error.filename)} is missing"
    except OSError as error:
        raise UnreadableError(error) from error
    except (TableError, IndexError) as error:
        return f"it cannot be read: {error}"
    return None


def _problem(key: bytes, entry: Any, path: str) -> str | None:
    if not entry.size or entry.dtype == _VARIANT:
        return None
    checksum = size = 0
    if entry.dtype == _STRING:
        data = b"".join(index.chunks(path, entry))
        size = len(data)
        count = math.prod(dim.size for dim in entry.shape.dim)
        checksum = _of_strings(data, count)
    else:
        for chunk in index.chunks(path, entry):
            size += len(chunk)
            checksum = crc32c(chunk, checksum)
    if size < entry.size:
        return f"{os.path.basename(path)} ends too early"
    if masked(checksum) == entry.crc32c:
        return None
    return f"{os.path.basename(path)} has a wrong checksum for {name_of(key)!r}"


def name_of(key: bytes) -> str:
    """Return the name of the value that a key of an index stands for.

    The key of a slice is encoded, so its name is "slice".
    """
    if key.isascii() and b"\0" not in key:
        return key.decode(errors="replace")
    return "slice"


def _of_strings(data: bytes, count: int) -> int:
    """Return the checksum of `count` strings, as they are stored in `data`.

    It covers their lengths as fixed-width integers, not as the varints in `data`, and
    then the rest of `data`. A length has 4 bytes, or 8 bytes from 2**32 on.
    """
    position = 0
    lengths: list[bytes] = []
    for _ in range(count):
        length, position = decode_varint(data, position)
        lengths.append(length.to_bytes(4 if length < 1 << 32 else 8, "little"))
    return crc32c(data[position:], crc32c(b"".join(lengths)))
