"""TensorBoard's event files, read and written without TensorFlow.

Each record has a length, the checksum of the length, an Event and the checksum of the
Event. TensorFlow's own reader and writer would need its import, which takes seconds.
"""

import glob
import os
import socket
import struct
from collections.abc import Iterator, Mapping

from crc32c import crc32c

from estimator_runtime.checkpoint.tensor_bundle import proto
from estimator_runtime.checkpoint.tensor_bundle.table import (
    TableError,
    encode_varint,
    masked,
)

_HEADER, _FOOTER_BYTES = struct.Struct("<QI"), 4
# Field numbers of Event, Summary and Summary.Value, in event.proto and summary.proto.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 1, 2, 3, 5
_VALUE, _TAG, _SIMPLE_VALUE = 1, 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VERSION = b"brain.Event:2"


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
    for record in _records(path):
        if prefix.encode() not in record:  # avoids parsing most records
            continue
        try:
            event = proto.fields(record)
            step = dict(event).get(_STEP, 0)
            for number, summary in event:
                if number == _SUMMARY:
                    yield from _values(step, summary, prefix)
        except (TableError, IndexError, UnicodeDecodeError, TypeError, AttributeError):
            continue  # another program's record, which only looks like an Event


def by_step(folder: str) -> dict[int, dict[str, float]]:
    """Read the scalars in all event files of a folder.

    If several files have a value for the same step and tag, the newest file wins.

    Returns:
        The scalars of each step: tag to value.

    Raises:
        OSError: If a file cannot be read.
    """
    found: dict[int, dict[str, float]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "events.out.*"))):
        for step, tag, value in scalars(path):
            found.setdefault(step, {})[tag] = value
    return found


def _values(step: int, summary: bytes, prefix: str) -> Iterator[tuple[int, str, float]]:
    for number, content in proto.fields(summary):
        value = dict(proto.fields(content)) if number == _VALUE else {}
        tag = value.get(_TAG, b"").decode()
        if tag.startswith(prefix) and _SIMPLE_VALUE in value:
            bits = value[_SIMPLE_VALUE] & 0xFFFFFFFF  # a float has only 32 bits
            number = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
            yield step, tag.removeprefix(prefix), number


def _records(path: str) -> Iterator[bytes]:
    most = os.path.getsize(path)
    with open(path, "rb") as file:
        while True:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return
            size, _ = _HEADER.unpack(header)
            record = file.read(min(size, most))
            if len(record) < size:  # being written, or truncated
                return
            file.seek(_FOOTER_BYTES, os.SEEK_CUR)
            yield record


class EventFile:
    """A new event file in a folder, which is created if necessary.

    Each call of `write` appends one record, which is in the file when the call returns.

    Args:
        folder: The folder. TensorBoard shows it as one run.
        now: Seconds since 1970.

    Raises:
        OSError: If the file cannot be created.
    """

    def __init__(self, folder: str, now: float) -> None:
        os.makedirs(folder, exist_ok=True)
        # The name follows TensorFlow's scheme, so that TensorBoard reads the files of
        # later runs after this one.
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}"
        self.path = os.path.join(folder, f"{name}.{os.getpid()}.launcher")
        self._append(_wall_time(now) + _bytes(_FILE_VERSION, _VERSION))

    def write(self, scalars: Mapping[str, float], step: int, now: float) -> None:
        """Write some scalars.

        Args:
            scalars: The values, by tag.
            step: The global step at which they are shown.
            now: Seconds since 1970.

        Raises:
            OSError: If the file cannot be written.
        """
        values = [
            _bytes(_TAG, tag.encode())
            + _key(_SIMPLE_VALUE, _FIXED32)
            + struct.pack("<f", value)
            for tag, value in scalars.items()
        ]
        summary = b"".join(_bytes(_VALUE, value) for value in values)
        step_field = _key(_STEP, _VARINT) + encode_varint(step)
        self._append(_wall_time(now) + step_field + _bytes(_SUMMARY, summary))

    def _append(self, event: bytes) -> None:
        size = struct.pack("<Q", len(event))
        # The file is opened for each record: no descriptor stays open, and no record
        # is lost when this process ends.
        with open(self.path, "ab") as file:
            file.write(size + _checksum(size) + event + _checksum(event))


def _wall_time(now: float) -> bytes:
    return _key(_WALL_TIME, _FIXED64) + struct.pack("<d", now)


def _bytes(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + encode_varint(len(content)) + content


def _key(number: int, kind: int) -> bytes:
    return encode_varint(number << 3 | kind)


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked(crc32c(data)))
