"""Whether the bytes of each value in a checkpoint are those that were written.

TensorFlow stores a crc32c with each value, and checks it when the value is read. Here
it is checked without TensorFlow: many pieces of a value are worked through side by side
by numpy, and their checksums put together as zlib's `crc32_combine` does.
"""

import functools
import os

from estimator_runtime.checkpoint import bundle
from estimator_runtime.checkpoint.message import (
    CRC32C,
    DTYPE,
    NUM_SHARDS,
    OFFSET,
    SHAPE,
    SHARD_ID,
    SIZE,
    fields,
)
from estimator_runtime.checkpoint.table import (
    CRC_TABLE,
    POLYNOMIAL,
    TableError,
    crc32c,
    masked,
    read_table,
    varint,
)

_DIM, _DIM_SIZE = 2, 1  # of TensorShapeProto, in tensor_shape.proto
_STRING, _VARIANT = 7, 21  # of tensorflow.DataType
_SMALL_BYTES = 4096
_PIECE_BYTES = 256
_CHUNK_BYTES = 16 << 20


def problem(prefix):
    """Say which value's bytes are not those that were written, in a few words.

    All of the data is read: this takes some seconds for each gigabyte.

    Args:
        prefix: Path of a checkpoint whose index is good, without suffix.

    Returns:
        A text, or None if all are. Values of variant type are not checked.
    """
    try:
        with open(f"{prefix}.index", "rb") as file:
            header, *entries = read_table(file.read())
        count = dict(fields(header[1])).get(NUM_SHARDS, 1)
        for key, value in entries:
            reason = _problem(prefix, count, key, dict(fields(value)))
            if reason is not None:
                return reason
    except (OSError, TableError, IndexError) as error:
        return f"it cannot be read: {error}"
    return None


def _problem(prefix, count, key, entry):
    size = entry.get(SIZE, 0)
    dtype = entry.get(DTYPE, 0)
    if not size or dtype == _VARIANT:
        return None
    path = bundle.shard_path(prefix, entry.get(SHARD_ID, 0), count)
    checksum = 0
    with open(path, "rb") as file:
        file.seek(entry.get(OFFSET, 0))
        if dtype == _STRING:
            checksum = _of_strings(file.read(size), _elements(entry.get(SHAPE, b"")))
        else:
            while size:
                chunk = file.read(min(size, _CHUNK_BYTES))
                if not chunk:
                    return f"{os.path.basename(path)} ends too early"
                size -= len(chunk)
                checksum = extend(checksum, chunk)
    if masked(checksum) == entry.get(CRC32C, 0):
        return None
    name = (
        key.decode(errors="replace") if key.isascii() and b"\0" not in key else "slice"
    )
    return f"{os.path.basename(path)} has a wrong checksum for {name!r}"


def extend(checksum, data):
    """Give the crc32c of some bytes that `checksum` is of, followed by `data`."""
    own = crc32c(data) if len(data) < _SMALL_BYTES else _of_many(data)
    return _apply(_zeros(len(data)), checksum) ^ own


def _of_strings(data, count):
    """Give the checksum of strings: of their lengths, 32 bits each, then the rest."""
    position, lengths = 0, []
    for _ in range(count):
        length, position = varint(data, position)
        lengths.append(length.to_bytes(4 if length < 1 << 32 else 8, "little"))
    return extend(crc32c(b"".join(lengths)), data[position:])


def _elements(shape):
    count = 1
    for number, dim in fields(shape):
        if number == _DIM:
            count *= dict(fields(dim)).get(_DIM_SIZE, 0)
    return count


def _of_many(data):
    import numpy as np

    table = np.array(CRC_TABLE, np.uint32)
    pieces = len(data) // _PIECE_BYTES
    body = np.frombuffer(data, np.uint8, pieces * _PIECE_BYTES)
    columns = np.ascontiguousarray(body.reshape(pieces, _PIECE_BYTES).T)
    sums = np.full(pieces, 0xFFFFFFFF, np.uint32)
    for column in columns:
        sums = table[(sums.astype(np.uint8)) ^ column] ^ (sums >> np.uint32(8))
    sums ^= np.uint32(0xFFFFFFFF)
    tail = crc32c(data[pieces * _PIECE_BYTES :])
    tail_bytes, length = len(data) - pieces * _PIECE_BYTES, _PIECE_BYTES
    while len(sums) > 1:
        if len(sums) % 2:  # the last one goes in front of the tail
            tail ^= _apply(_zeros(tail_bytes), int(sums[-1]))
            tail_bytes += length
            sums = sums[:-1]
        operator, left, moved = _zeros(length), sums[0::2], np.zeros_like(sums[0::2])
        for bit in range(32):
            is_set = (left >> np.uint32(bit)) & np.uint32(1)
            moved ^= is_set * np.uint32(operator[bit])
        sums, length = moved ^ sums[1::2], 2 * length
    return _apply(_zeros(tail_bytes), int(sums[0])) ^ tail


@functools.lru_cache(maxsize=256)
def _zeros(count):
    """Give what `count` bytes of 0 do to a checksum: where each of its bits goes."""
    power = [POLYNOMIAL, *(1 << bit for bit in range(31))]  # of one bit of 0
    for _ in range(3):
        power = [_apply(power, each) for each in power]
    result = [1 << bit for bit in range(32)]
    while count:
        if count & 1:
            result = [_apply(power, each) for each in result]
        power = [_apply(power, each) for each in power]
        count >>= 1
    return result


def _apply(operator, checksum):
    result, bit = 0, 0
    while checksum:
        if checksum & 1:
            result ^= operator[bit]
        checksum >>= 1
        bit += 1
    return result
