"""The sorted table of strings in a checkpoint's `.index` file: reader and writer.

The format is LevelDB's, which TensorFlow writes without compression. A table has:

* blocks of entries whose keys share prefixes, each followed by a type byte and a
  checksum;
* a block with the position of each of those blocks;
* a footer of 48 bytes.

The reader checks everything, so that damage is found here and not in the middle of a
restore. The writer produces the same bytes as TensorFlow for the same entries.
"""

import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Sequence

from crc32c import crc32c

MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # the type of the block, and its checksum
_BLOCK_BYTES = 256 << 10  # a block that has reached this size is closed
_RESTART_INTERVAL = 16  # entries from one with a whole key to the next such entry
_HANDLES_BYTES = 40  # of the footer, before the magic number
_UNCOMPRESSED = b"\0"
_LIMIT = b"\xff"  # greater than any key
_META_INDEX = struct.pack("<2I", 0, 1)  # a block without entries


class TableError(ValueError):
    """A table cannot be read; the message names the problem."""


def read_table(content: bytes) -> list[tuple[bytes, bytes]]:
    """Return the entries of a table.

    Args:
        content: The content of the whole file.

    Returns:
        A list of (key, value), in the order of the file.

    Raises:
        TableError: If the table is damaged, or is not a checkpoint's index.
    """
    if not content:
        raise TableError("is empty")
    if len(content) < _FOOTER_BYTES:
        raise TableError(f"has {len(content)} bytes, too few for a checkpoint's index")
    footer = content[-_FOOTER_BYTES:]
    if struct.unpack("<Q", footer[-8:])[0] != MAGIC:
        raise TableError("does not end as a checkpoint's index does")
    try:
        _, _, position = _handle(footer, 0)  # of the meta index, which is not used here
        offset, size, _ = _handle(footer, position)
        entries: list[tuple[bytes, bytes]] = []
        for _, handle in _entries(_block(content, offset, size)):
            offset, size, _ = _handle(handle, 0)
            entries.extend(_entries(_block(content, offset, size)))
    except (IndexError, struct.error) as error:
        raise TableError("has entries that end too early") from error
    return entries


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode a number that has 7 bits in each byte.

    Args:
        data: The bytes to read from.
        position: Where the number begins.

    Returns:
        (the number, the position after it).

    Raises:
        IndexError: If `data` ends before the number does.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def masked(crc: int) -> int:
    """Return a checksum in its stored form.

    It is masked, because the checksum of data that contains checksums is unreliable.
    """
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _handle(data: bytes, position: int) -> tuple[int, int, int]:
    """Return (offset and size of a block, the position after its handle)."""
    offset, position = decode_varint(data, position)
    size, position = decode_varint(data, position)
    return offset, size, position


def _block(content: bytes, offset: int, size: int) -> bytes:
    end = offset + size + _TRAILER_BYTES
    if end > len(content) - _FOOTER_BYTES:
        raise TableError("is shorter than it says")
    [stored] = struct.unpack_from("<I", content, offset + size + 1)
    if masked(crc32c(content[offset : offset + size + 1])) != stored:
        raise TableError(f"has a wrong checksum at byte {offset}")
    if content[offset + size] != 0:
        raise TableError("is compressed, as no checkpoint's index is")
    return content[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    [restarts] = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 * (restarts + 1)
    position, key = 0, b""
    while position < end:
        shared, position = decode_varint(block, position)
        own, position = decode_varint(block, position)
        size, position = decode_varint(block, position)
        key = key[:shared] + block[position : position + own]
        position += own
        yield key, block[position : position + size]
        position += size


def table(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the content of a table.

    Args:
        entries: One or more (key, value), sorted by key. The keys are texts in UTF-8,
            and no two are equal.

    Returns:
        The content of the whole file.
    """
    content = bytearray()
    index: list[tuple[bytes, bytes]] = []
    done = 0
    while done < len(entries):
        left = itertools.islice(entries, done, None)
        block, count = _new_block(left, _RESTART_INTERVAL, _BLOCK_BYTES)
        done += count
        limit = entries[done][0] if done < len(entries) else _LIMIT
        separator = _separator(entries[done - 1][0], limit)
        index.append((separator, _append(content, block)))
    handles = _append(content, _META_INDEX)
    handles += _append(content, _new_block(index, restart_interval=1)[0])
    content += handles.ljust(_HANDLES_BYTES, b"\0") + struct.pack("<Q", MAGIC)
    return bytes(content)


def encode_varint(value: int) -> bytes:
    """Encode a number with 7 bits in each byte."""
    written = bytearray()
    while value >= 128:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def _new_block(
    entries: Iterable[tuple[bytes, bytes]],
    restart_interval: int,
    most_bytes: float = math.inf,
) -> tuple[bytes, int]:
    """Return a block of the first entries; most store only a part of their key.

    Args:
        entries: At least one (key, value).
        restart_interval: Number of entries from one that stores its whole key to the
            next such entry.
        most_bytes: Once the block has reached this size, it gets no more entries.

    Returns:
        (the content of the block, how many entries it has).
    """
    content, restarts, last_key, count = bytearray(), [], b"", 0
    for key, value in entries:
        shared = _common(last_key, key)
        if count % restart_interval == 0:
            shared = 0
            restarts.append(len(content))
        lengths = (shared, len(key) - shared, len(value))
        content += b"".join(map(encode_varint, lengths)) + key[shared:] + value
        last_key, count = key, count + 1
        if len(content) + 4 * len(restarts) + 4 >= most_bytes:
            break
    numbers = [*restarts, len(restarts)]
    return bytes(content) + struct.pack(f"<{len(numbers)}I", *numbers), count


def _append(content: bytearray, block: bytes) -> bytes:
    """Append a block to a table; return its handle."""
    handle = encode_varint(len(content)) + encode_varint(len(block))
    block += _UNCOMPRESSED
    content += block + struct.pack("<I", masked(crc32c(block)))
    return handle


def _separator(key: bytes, limit: bytes) -> bytes:
    """Return a short key that is not less than `key`, but less than `limit`."""
    place = _common(key, limit)
    if place < len(key) and key[place] + 1 < limit[place]:
        return key[:place] + bytes([key[place] + 1])
    return key


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two keys."""
    most = min(len(one), len(other))
    return next((i for i in range(most) if one[i] != other[i]), most)
