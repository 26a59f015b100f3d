"""The cost of a training's checkpoints, read from its event files."""

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
    """The cost of a checkpoint.

    Attributes:
        blocked_secs: How long training was blocked, in seconds.
        write_secs: How long the write took in the background, while training continued,
            in seconds; 0 if the write is part of `blocked_secs`.
        interval_secs: Seconds since the previous checkpoint, or None for the first.
    """

    blocked_secs: float
    write_secs: float
    interval_secs: float | None

    @property
    def cost_secs(self) -> float:
        """The largest possible cost, in seconds.

        On a few cores, a write in the background also takes time from training.
        """
        return self.blocked_secs + self.write_secs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs(Cost):
    """The cost of a training's checkpoints: the median of each figure.

    Attributes:
        count: How many checkpoints were measured.
    """

    count: int

    def best_interval_secs(self, mtbf_secs: float) -> float:
        """Return the seconds between checkpoints that lose the least time.

        This is Young's formula (CACM 17(9), 1974), on which Daly's is based. The result
        is never less than the cost of one checkpoint.

        Args:
            mtbf_secs: Mean time between failures of the training, in seconds.
        """
        return max(math.sqrt(2 * self.cost_secs * mtbf_secs), self.cost_secs)

    def lost_part(self, interval_secs: float, mtbf_secs: float) -> float:
        """Return the fraction of the time that checkpoints and repeated work take.

        On average, a failure occurs in the middle between two checkpoints.

        Args:
            interval_secs: Seconds between two checkpoints.
            mtbf_secs: Mean time between failures of the training, in seconds.
        """
        return self.cost_secs / interval_secs + interval_secs / (2 * mtbf_secs)


def read(folder: str) -> Costs:
    """Read the cost of a training's checkpoints.

    Args:
        folder: Its model directory.

    Returns:
        The medians of all checkpoints.

    Raises:
        CheckpointError: If an event file cannot be read, or none has a cost.
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
