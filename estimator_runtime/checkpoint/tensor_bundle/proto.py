"""Reads the protocol buffers in a checkpoint's index, without TensorFlow's classes."""

from estimator_runtime.checkpoint.table import TableError, varint

# Field numbers of BundleHeaderProto and BundleEntryProto, in tensor_bundle.proto.
NUM_SHARDS = 1
DTYPE, SHAPE, SHARD_ID, OFFSET, SIZE, CRC32C = 1, 2, 3, 4, 5, 6
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(message):
    """Give the fields of a message.

    Args:
        message: Bytes.

    Returns:
        List of (number, value) in their order; a value is an int, or bytes.

    Raises:
        IndexError: If it ends within a number.
        TableError: If it has a field of a kind that no message here has.
    """
    found, position = [], 0
    while position < len(message):
        tag, position = varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = varint(message, position)
        elif kind == _BYTES:
            size, position = varint(message, position)
            value, position = message[position : position + size], position + size
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
            value = int.from_bytes(message[position : position + size], "little")
            position += size
        else:
            raise TableError(f"has a field of unknown kind {kind}")
        found.append((tag >> 3, value))
    return found
