"""What the checkpoints of a training have cost, read back from its event files."""

import dataclasses
import glob
import math
import os
import statistics

from estimator_runtime.checkpoint import event_file
from estimator_runtime.errors import CheckpointError

_PREFIX = "checkpoint/"


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
            for step, tag, value in event_file.scalars(path, _PREFIX):
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
