"""Writes the sorted table of strings that a checkpoint's `.index` file is; see `table`.

The bytes are those that TensorFlow writes for the same entries.
"""

import struct

from crc32c import crc32c

from estimator_runtime.checkpoint.table import MAGIC, masked

_BLOCK_BYTES = 256 << 10  # a block is closed when it has as many
_RESTART_INTERVAL = 16  # entries from one that has its whole key to the next
_HANDLES_BYTES = 40  # of the footer, before the magic number
_UNCOMPRESSED = b"\0"


def table(entries):
    """Give the content of a table.

    Args:
        entries: (key, value), both bytes, by ascending keys, which differ.

    Returns:
        Bytes.
    """
    content = bytearray()
    index = _Block(restart_interval=1)
    block, handle = _Block(_RESTART_INTERVAL), b""
    for key, value in entries:
        if handle:
            index.add(_separator(block.last_key, key), handle)
            block, handle = _Block(_RESTART_INTERVAL), b""
        block.add(key, value)
        if block.bytes >= _BLOCK_BYTES:
            handle = _append(content, block)
    if block.bytes and not handle:
        handle = _append(content, block)
    meta_handle = _append(content, _Block(_RESTART_INTERVAL))
    if handle:
        index.add(_successor(block.last_key), handle)
    handles = meta_handle + _append(content, index)
    content += handles.ljust(_HANDLES_BYTES, b"\0") + struct.pack("<Q", MAGIC)
    return bytes(content)


def varint(value):
    """Write a number of 7 bits a byte."""
    written = bytearray()
    while value >= 128:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


class _Block:
    """Entries, most of which have only that of their key in which it differs."""

    def __init__(self, restart_interval):
        self.last_key = b""
        self._interval = restart_interval
        self._content = bytearray()
        self._restarts = [0]
        self._since_restart = 0

    @property
    def bytes(self):
        """How many it has now; 0 for none of its entries."""
        if not self._content:
            return 0
        return len(self._content) + 4 * len(self._restarts) + 4

    def add(self, key, value):
        shared = 0
        if self._since_restart == self._interval:
            self._restarts.append(len(self._content))
            self._since_restart = 0
        elif self._since_restart:
            shared = _common(self.last_key, key)
        lengths = (shared, len(key) - shared, len(value))
        self._content += b"".join(map(varint, lengths)) + key[shared:] + value
        self.last_key = key
        self._since_restart += 1

    def content(self):
        numbers = [*self._restarts, len(self._restarts)]
        return bytes(self._content) + struct.pack(f"<{len(numbers)}I", *numbers)


def _append(content, block):
    """Append a block to a table; give its handle."""
    data = block.content()
    handle = varint(len(content)) + varint(len(data))
    data += _UNCOMPRESSED
    content += data + struct.pack("<I", masked(crc32c(data)))
    return handle


def _common(one, other):
    """Give how many bytes two keys have in common, at their beginning."""
    most = min(len(one), len(other))
    return next((i for i in range(most) if one[i] != other[i]), most)


def _separator(key, limit):
    """Give a short key that is not below `key`, but below `limit`."""
    place = _common(key, limit)
    if place < min(len(key), len(limit)):
        byte = key[place]
        if byte < 0xFF and byte + 1 < limit[place]:
            return key[:place] + bytes([byte + 1])
    return key


def _successor(key):
    """Give a short key that is not below `key`."""
    for place, byte in enumerate(key):
        if byte != 0xFF:
            return key[:place] + bytes([byte + 1])
    return key
