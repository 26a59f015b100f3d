"""Whether the bytes of each value in a checkpoint are those that were written.

TensorFlow stores a crc32c with each value, and checks it when the value is read. Here
it is checked without TensorFlow, whose import takes longer.
"""

import os

from crc32c import crc32c

from estimator_runtime.checkpoint import bundle
from estimator_runtime.checkpoint.message import (
    CRC32C,
    DTYPE,
    SHAPE,
    SIZE,
    fields,
)
from estimator_runtime.checkpoint.reading import UnreadableError
from estimator_runtime.checkpoint.table import TableError, masked, varint

_DIM, _DIM_SIZE = 2, 1  # of TensorShapeProto, in tensor_shape.proto
_STRING, _VARIANT = 7, 21  # of tensorflow.DataType


def problem(prefix):
    """Return which value's bytes are not those that were written, in a few words.

    All of the data is read.

    Args:
        prefix: Path of a checkpoint whose index is good, without suffix.

    Returns:
        A text, or None if all are. Values of variant type are not checked, nor those of
        the V1 format.

    Raises:
        UnreadableError: If a file cannot be read, which says nothing about it.
    """
    try:
        if not os.path.exists(f"{prefix}.index") and bundle.v1_files(prefix):
            return None
        for key, entry, path in bundle.values(prefix):
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


def _problem(key, entry, path):
    size = entry.get(SIZE, 0)
    dtype = entry.get(DTYPE, 0)
    if not size or dtype == _VARIANT:
        return None
    checksum = 0
    if dtype == _STRING:
        data = b"".join(bundle.chunks(path, entry))
        checksum = _of_strings(data, _elements(entry.get(SHAPE, b"")))
    else:
        for chunk in bundle.chunks(path, entry):
            size -= len(chunk)
            checksum = crc32c(chunk, checksum)
        if size:
            return f"{os.path.basename(path)} ends too early"
    if masked(checksum) == entry.get(CRC32C, 0):
        return None
    return f"{os.path.basename(path)} has a wrong checksum for {name_of(key)!r}"


def name_of(key):
    """Name the value that an entry of an index is of, as far as the key says it."""
    if key.isascii() and b"\0" not in key:
        return key.decode(errors="replace")
    return "slice"


def _of_strings(data, count):
    """Give the checksum of strings: of their lengths, 32 bits each, then the rest."""
    position, lengths = 0, []
    for _ in range(count):
        length, position = varint(data, position)
        lengths.append(length.to_bytes(4 if length < 1 << 32 else 8, "little"))
    return crc32c(data[position:], crc32c(b"".join(lengths)))


def _elements(shape):
    count = 1
    for number, dim in fields(shape):
        if number == _DIM:
            count *= dict(fields(dim)).get(_DIM_SIZE, 0)
    return count
