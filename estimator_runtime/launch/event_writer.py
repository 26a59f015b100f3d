"""Writes scalars for TensorBoard, without TensorFlow; see `checkpoint.event_file`.

The format: records of a length, its checksum, an Event and a checksum.
"""

import os
import socket
import struct

from crc32c import crc32c

from estimator_runtime.checkpoint.table import masked
from estimator_runtime.checkpoint.table_writer import varint

# Field numbers of Event, Summary and Summary.Value, in event.proto and summary.proto.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 1, 2, 3, 5
_VALUE, _TAG, _SIMPLE_VALUE = 1, 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VERSION = b"brain.Event:2"


class EventFile:
    """A new event file in a folder, which is made where it is not there.

    Each write is a record of its own, and in the file when `write` returns.

    Args:
        folder: What TensorBoard shows as one run.
        now: Seconds since 1970.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, folder, now):
        os.makedirs(folder, exist_ok=True)
        # As TensorFlow names them, so that those of later runs are read after these.
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}"
        self.path = os.path.join(folder, f"{name}.{os.getpid()}.launcher")
        self._append(_wall_time(now) + _bytes(_FILE_VERSION, _VERSION))

    def write(self, scalars, step, now):
        """Write some scalars.

        Args:
            scalars: Tag to value.
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
        step_field = _key(_STEP, _VARINT) + varint(step)
        self._append(_wall_time(now) + step_field + _bytes(_SUMMARY, summary))

    def _append(self, event):
        size = struct.pack("<Q", len(event))
        # A record at a time: nothing is held open, or lost with this process.
        with open(self.path, "ab") as file:
            file.write(size + _checksum(size) + event + _checksum(event))


def _wall_time(now):
    return _key(_WALL_TIME, _FIXED64) + struct.pack("<d", now)


def _bytes(number, content):
    return _key(number, _BYTES) + varint(len(content)) + content


def _key(number, kind):
    return varint(number << 3 | kind)


def _checksum(data):
    return struct.pack("<I", masked(crc32c(data)))
