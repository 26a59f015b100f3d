"""What the checkpoints of a training have cost, read back from its event files.

The format is TensorBoard's: records of a length, its checksum, an Event and a checksum.
Read here without TensorFlow, whose import takes seconds.
"""

import dataclasses
import glob
import math
import os
import statistics
import struct

from estimator_runtime.checkpoint import message
from estimator_runtime.checkpoint.table import TableError
from estimator_runtime.errors import CheckpointError

# Field numbers of Event, Summary and Summary.Value, in event.proto and summary.proto.
_STEP, _SUMMARY, _VALUE, _TAG, _SIMPLE_VALUE = 2, 5, 1, 1, 2
_PREFIX = "checkpoint/"
_HEADER, _FOOTER_BYTES = struct.Struct("<QI"), 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """What a checkpoint has cost.

    Attributes:
        blocked_secs: How long training was kept from going on, in seconds.
        write_secs: How long it took until it was on the disk, in seconds; while
            training went on, or 0 if that is in `blocked_secs`.
        interval_secs: Seconds since the checkpoint before; None if there was none.
    """

    blocked_secs: float
    write_secs: float
    interval_secs: float | None

    @property
    def cost_secs(self):
        """What it has cost at most: a write takes time from training, on few cores."""
        return self.blocked_secs + self.write_secs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs(Cost):
    """The cost of a training's checkpoints: of each figure the median.

    Attributes:
        count: How many were measured.
    """

    count: int

    def best_interval_secs(self, mtbf_secs):
        """Give the seconds between checkpoints that lose the least time.

        Young's formula (CACM 17(9), 1974), which Daly's goes on from, for a training
        that fails once in `mtbf_secs` on average; never less than one checkpoint takes.
        """
        return max(math.sqrt(2 * self.cost_secs * mtbf_secs), self.cost_secs)

    def lost_part(self, interval_secs, mtbf_secs):
        """Give the part of the time that checkpoints, and work done again, take.

        A failure comes, on average, in the middle between two checkpoints.
        """
        return self.cost_secs / interval_secs + interval_secs / (2 * mtbf_secs)


def read(folder):
    """Read what a training's checkpoints have cost.

    Args:
        folder: Its model directory.

    Returns:
        `Costs`.

    Raises:
        CheckpointError: If its event files do not say.
    """
    found: dict[str, dict[int, float]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "events.out.*"))):
        try:
            for step, tag, value in _scalars(path):
                found.setdefault(tag, {})[step] = value
        except OSError as error:
            raise CheckpointError(
                f"the event file {path!r} cannot be read: {error.strerror or error}"
            ) from error
    blocked = found.get("blocked_secs")
    if not blocked:
        raise CheckpointError(
            f"the event files in {folder!r} do not say what a checkpoint costs; train "
            "with this runtime until it has saved one, then ask again"
        )
    intervals = found.get("interval_secs")
    return Costs(
        count=len(blocked),
        blocked_secs=statistics.median(blocked.values()),
        write_secs=statistics.median(found.get("write_secs", {0: 0.0}).values()),
        interval_secs=statistics.median(intervals.values()) if intervals else None,
    )


def _scalars(path):
    for record in _records(path):
        if _PREFIX.encode() not in record:  # most are not worth a closer look
            continue
        try:
            event = message.fields(record)
            step = dict(event).get(_STEP, 0)
            for number, summary in event:
                if number == _SUMMARY:
                    yield from _checkpoint_values(step, summary)
        except (TableError, IndexError, UnicodeDecodeError, TypeError, AttributeError):
            continue  # somebody else's, that only looks like it


def _checkpoint_values(step, summary):
    for number, content in message.fields(summary):
        value = dict(message.fields(content)) if number == _VALUE else {}
        tag = value.get(_TAG, b"").decode()
        if tag.startswith(_PREFIX) and _SIMPLE_VALUE in value:
            bits = value[_SIMPLE_VALUE] & 0xFFFFFFFF  # a float has no more
            number = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
            yield step, tag.removeprefix(_PREFIX), number


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
