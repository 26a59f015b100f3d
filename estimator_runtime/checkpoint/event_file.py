"""TensorBoard's event files, read without TensorFlow.

Each record has a length, the checksum of the length, an Event and the checksum of the
Event. TensorFlow's own reader would need its import, which takes seconds. TensorBoard's
does without, but computes the checksums in Python: for a graph, which is in most event
files, that takes seconds too.
"""

import glob
import os
import struct
from collections.abc import Iterator

from crc32c import crc32c

from estimator_runtime.checkpoint.tensor_bundle.regular_files import opener
from estimator_runtime.checkpoint.tensor_bundle.table import masked

_HEADER, _FOOTER_BYTES = struct.Struct("<QI"), 4
_MOST_BYTES = 2 << 30  # of a protocol buffer


def scalars(path: str, prefix: str = "") -> Iterator[tuple[int, str, float]]:
    """Read the scalars in an event file, in the order of the file.

    Args:
        path: The file. If it is still being written, its complete records are read.
        prefix: Only scalars whose tag begins with this are read.

    Yields:
        (step, tag without the prefix, value).

    Raises:
        OSError: If the file cannot be read.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    for record in _records(path):
        if prefix.encode() not in record:  # avoids parsing most records
            continue
        try:
            event = Event.FromString(record)
        except DecodeError:  # another program's record, which only looks like an Event
            continue
        for value in event.summary.value:
            if value.tag.startswith(prefix) and value.HasField("simple_value"):
                yield event.step, value.tag.removeprefix(prefix), value.simple_value


def by_step(folder: str, prefix: str = "") -> dict[int, dict[str, float]]:
    """Return the scalars in all event files of a folder: step to tag to value.

    They are those that `scalars` yields. If several files have a value for the same
    step and tag, the newest file wins.

    Raises:
        OSError: If a file cannot be read.
    """
    found: dict[int, dict[str, float]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "events.out.*"))):
        for step, tag, value in scalars(path, prefix):
            found.setdefault(step, {})[tag] = value
    return found


def _records(path: str) -> Iterator[bytes]:
    most = min(os.path.getsize(path), _MOST_BYTES)
    with open(path, "rb", opener=opener) as file:
        while True:
            header = file.read(_HEADER.size)
            # The checksum ends, for example, a file of zeros.
            if len(header) < _HEADER.size or _checksum(header[:8]) != header[8:]:
                return
            size, _ = _HEADER.unpack(header)
            record = file.read(min(size, most))
            if len(record) < size:  # being written, or truncated
                return
            file.seek(_FOOTER_BYTES, os.SEEK_CUR)
            yield record


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked(crc32c(data)))
