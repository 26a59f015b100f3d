"""The sorted table of strings in a checkpoint's `.index` file: reader and writer.

The format is LevelDB's, which TensorFlow writes without compression. A table has:

* blocks of entries whose keys share prefixes, each followed by a type byte and a
  checksum;
* a block with the position of each of those blocks;
* a footer of 48 bytes.

The reader checks everything, so that damage is found here and not in the middle of a
restore. The writer produces the same bytes as TensorFlow for the same entries.
"""

import struct
from collections.abc import Iterable, Iterator

from crc32c import crc32c

MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # the type of the block, and its checksum
_BLOCK_BYTES = 256 << 10  # a block that has reached this size is closed
_RESTART_INTERVAL = 16  # entries from one with a whole key to the next such entry
_HANDLES_BYTES = 40  # of the footer, before the magic number
_UNCOMPRESSED = b"\0"


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


def table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the content of a table.

    Args:
        entries: The (key, value) pairs, sorted by key. No two keys are equal.

    Returns:
        The content of the whole file.
    """
    content = bytearray()
    index = _Block(restart_interval=1)
    block, handle = _Block(_RESTART_INTERVAL), b""
    for key, value in entries:
        if handle:
            index.add(_separator(block.last_key, key), handle)
            block, handle = _Block(_RESTART_INTERVAL), b""
        block.add(key, value)
        if block.size >= _BLOCK_BYTES:
            handle = _append(content, block)
    if block.size and not handle:
        handle = _append(content, block)
    meta_handle = _append(content, _Block(_RESTART_INTERVAL))
    if handle:
        index.add(_successor(block.last_key), handle)
    handles = meta_handle + _append(content, index)
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


class _Block:
    """A block of entries, most of which store only the part of their key that differs.

    Args:
        restart_interval: Number of entries from one that stores its whole key to the
            next such entry.
    """

    def __init__(self, restart_interval: int) -> None:
        self.last_key = b""
        self._interval = restart_interval
        self._content = bytearray()
        self._restarts = [0]
        self._since_restart = 0

    @property
    def size(self) -> int:
        """Size of the block in bytes; 0 if it has no entries."""
        if not self._content:
            return 0
        return len(self._content) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._since_restart == self._interval:
            self._restarts.append(len(self._content))
            self._since_restart = 0
        elif self._since_restart:
            shared = _common(self.last_key, key)
        lengths = (shared, len(key) - shared, len(value))
        self._content += b"".join(map(encode_varint, lengths)) + key[shared:] + value
        self.last_key = key
        self._since_restart += 1

    def content(self) -> bytes:
        numbers = [*self._restarts, len(self._restarts)]
        return bytes(self._content) + struct.pack(f"<{len(numbers)}I", *numbers)


def _append(content: bytearray, block: _Block) -> bytes:
    """Append a block to a table; return its handle."""
    data = block.content()
    handle = encode_varint(len(content)) + encode_varint(len(data))
    data += _UNCOMPRESSED
    content += data + struct.pack("<I", masked(crc32c(data)))
    return handle


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of two keys."""
    most = min(len(one), len(other))
    return next((i for i in range(most) if one[i] != other[i]), most)


def _separator(key: bytes, limit: bytes) -> bytes:
    """Return a short key that is not less than `key`, but less than `limit`."""
    place = _common(key, limit)
    if place < min(len(key), len(limit)):
        byte = key[place]
        if byte < 0xFF and byte + 1 < limit[place]:
            return key[:place] + bytes([byte + 1])
    return key


def _successor(key: bytes) -> bytes:
    """Return a short key that is not less than `key`."""
    for place, byte in enumerate(key):
        if byte != 0xFF:
            return key[:place] + bytes([byte + 1])
    return key
