"""Reads the sorted table of strings that a checkpoint's `.index` file is.

The format is LevelDB's, which TensorFlow writes without compression: blocks of entries
whose keys share prefixes, each followed by a type byte and a checksum; then a block
that tells where those are; then a footer of 48 bytes. Everything is checked as it is
read, so that damage is found here and not in the middle of a restore.
"""

import struct

from crc32c import crc32c

MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5  # the type of the block, and its checksum


class TableError(ValueError):
    """A table cannot be read; the message says what is wrong with it."""


def read_table(content):
    """Give the entries of a table.

    Args:
        content: The whole file, as bytes.

    Returns:
        List of (key, value), both bytes, in the order of the file.

    Raises:
        TableError: If anything in it is not as it was written.
    """
    if not content:
        raise TableError("is empty")
    if len(content) < _FOOTER_BYTES:
        raise TableError(f"has {len(content)} bytes, too few for a checkpoint's index")
    footer = content[-_FOOTER_BYTES:]
    if struct.unpack("<Q", footer[-8:])[0] != MAGIC:
        raise TableError("does not end as a checkpoint's index does")
    try:
        _, _, position = _handle(footer, 0)  # of an index that is not used here
        offset, size, _ = _handle(footer, position)
        entries = []
        for _, handle in _entries(_block(content, offset, size)):
            offset, size, _ = _handle(handle, 0)
            entries.extend(_entries(_block(content, offset, size)))
    except (IndexError, struct.error) as error:
        raise TableError("has entries that end too early") from error
    return entries


def varint(data, position):
    """Read a number of 7 bits a byte; give it, and the position behind it.

    Raises:
        IndexError: If `data` ends before it does.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def masked(crc):
    """Give a checksum as it is stored: one of data with checksums would be bad."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _handle(data, position):
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return offset, size, position


def _block(content, offset, size):
    end = offset + size + _TRAILER_BYTES
    if end > len(content) - _FOOTER_BYTES:
        raise TableError("is shorter than it says")
    [stored] = struct.unpack_from("<I", content, offset + size + 1)
    if masked(crc32c(content[offset : offset + size + 1])) != stored:
        raise TableError(f"has a wrong checksum at byte {offset}")
    if content[offset + size] != 0:
        raise TableError("is compressed, as no checkpoint's index is")
    return content[offset : offset + size]


def _entries(block):
    [restarts] = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 * (restarts + 1)
    position, key = 0, b""
    while position < end:
        shared, position = varint(block, position)
        own, position = varint(block, position)
        size, position = varint(block, position)
        key = key[:shared] + block[position : position + own]
        position += own
        yield key, block[position : position + size]
        position += size
