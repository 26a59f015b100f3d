"""A reader of the protocol buffers in a checkpoint's index.

It does not need TensorFlow's classes.
"""

from typing import Any

from estimator_runtime.checkpoint.tensor_bundle.table import TableError, decode_varint

# Field numbers of BundleHeaderProto and BundleEntryProto, in tensor_bundle.proto.
NUM_SHARDS = 1
DTYPE, SHAPE, SHARD_ID, OFFSET, SIZE, CRC32C = 1, 2, 3, 4, 5, 6
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a message.

    Args:
        message: The serialized message.

    Returns:
        A list of (number, value), in the order of the message. A value is an int or
        bytes, depending on the type of the field.

    Raises:
        IndexError: If the message ends within a varint. A truncated value of another
            type is returned as it is.
        TableError: If it has a field of a wire type that no message here has.
    """
    found: list[tuple[int, Any]] = []
    position = 0
    value: Any
    while position < len(message):
        tag, position = decode_varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = decode_varint(message, position)
        elif kind == _BYTES:
            size, position = decode_varint(message, position)
            value, position = message[position : position + size], position + size
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
            value = int.from_bytes(message[position : position + size], "little")
            position += size
        else:
            raise TableError(f"has a field of unknown kind {kind}")
        found.append((tag >> 3, value))
    return found
