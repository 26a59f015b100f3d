"""Reads the numbers in TensorBoard's event files, without TensorFlow.

The format is TensorBoard's: records of a length, its checksum, an Event and a checksum.
Read here by ourselves, because TensorFlow's import takes seconds.
"""

import glob
import os
import struct

from estimator_runtime.checkpoint import message
from estimator_runtime.checkpoint.table import TableError

# Field numbers of Event, Summary and Summary.Value, in event.proto and summary.proto.
_STEP, _SUMMARY, _VALUE, _TAG, _SIMPLE_VALUE = 2, 5, 1, 1, 2
_HEADER, _FOOTER_BYTES = struct.Struct("<QI"), 4


def scalars(path, prefix=""):
    """Read the numbers of an event file, in its order.

    Args:
        path: The file; one that is being written is read as far as it is.
        prefix: What their tags begin with.

    Yields:
        (step, tag without the prefix, number).

    Raises:
        OSError: If it cannot be read.
    """
    for record in _records(path):
        if prefix.encode() not in record:  # most are not worth a closer look
            continue
        try:
            event = message.fields(record)
            step = dict(event).get(_STEP, 0)
            for number, summary in event:
                if number == _SUMMARY:
                    yield from _values(step, summary, prefix)
        except (TableError, IndexError, UnicodeDecodeError, TypeError, AttributeError):
            continue  # somebody else's, that only looks like it


def by_step(folder):
    """Read the numbers in all event files of a folder; the newest of each counts.

    Returns:
        Step to a dict of tag to number.

    Raises:
        OSError: If a file cannot be read.
    """
    found: dict[int, dict[str, float]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "events.out.*"))):
        for step, tag, value in scalars(path):
            found.setdefault(step, {})[tag] = value
    return found


def _values(step, summary, prefix):
    for number, content in message.fields(summary):
        value = dict(message.fields(content)) if number == _VALUE else {}
        tag = value.get(_TAG, b"").decode()
        if tag.startswith(prefix) and _SIMPLE_VALUE in value:
            bits = value[_SIMPLE_VALUE] & 0xFFFFFFFF  # a float has no more
            number = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
            yield step, tag.removeprefix(prefix), number


def _records(path):
    most = os.path.getsize(path)
    with open(path, "rb") as file:
        while True:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            size, _ = _HEADER.unpack(header)
            record = file.read(min(size, most))
            if len(record) < size:  # being written, or cut off
                return
            file.seek(_FOOTER_BYTES, os.SEEK_CUR)
            yield record
