"""The cost of a training's checkpoints: written to its event files, and read there."""

import dataclasses
import math
import statistics
from typing import Any

from estimator_runtime.checkpoint import event_file
from estimator_runtime.errors import CheckpointError
from estimator_runtime.output.training_log import TRAINING_LOG

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
class CheckpointCost(Cost):
    """The cost of one checkpoint.

    Attributes:
        step: Its global step.
        bytes: Size of its values, or of its files if a Saver has written them, in
            bytes; 0 if it is not known.
    """

    step: int
    bytes: int

    def report(self, summary_writer: Any) -> None:
        """Write the cost to the log, and as scalars to an event file.

        Args:
            summary_writer: The `tf.compat.v1.summary.FileWriter` of the event file.
        """
        # Not above: the command line reads costs without TensorFlow.
        from tensorflow.core.framework.summary_pb2 import Summary

        texts = [f"training waited {self.blocked_secs:.4f} s"]
        if self.write_secs:
            texts.append(f"the background wrote for {self.write_secs:.4f} s")
        if self.interval_secs is not None:
            texts.append(f"{self.interval_secs:.1f} s after the one before")
        TRAINING_LOG.info(
            "Checkpoint of step %d, %d bytes: %s",
            self.step,
            self.bytes,
            ", ".join(texts),
        )
        values = [
            Summary.Value(tag=f"{_PREFIX}{name}", simple_value=getattr(self, name))
            for name in ("blocked_secs", "write_secs", "bytes", "interval_secs")
            if getattr(self, name) is not None
        ]
        summary_writer.add_summary(Summary(value=values), self.step)
        # Otherwise the file is flushed only every two minutes, and TensorBoard would be
        # more than one checkpoint behind.
        summary_writer.flush()


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

    Returns:
        The medians of all checkpoints.

    Raises:
        CheckpointError: If an event file cannot be read, or none has a cost.
    """
    try:
        measured = event_file.by_step(folder, _PREFIX).values()
    except OSError as error:
        raise CheckpointError(
            f"the event file {error.filename!r} cannot be read: "
            f"{error.strerror or error}"
        ) from error

    def median_of(tag: str) -> float | None:
        values = [each[tag] for each in measured if tag in each]
        return statistics.median(values) if values else None

    blocked_secs = median_of("blocked_secs")
    if blocked_secs is None:
        raise CheckpointError(
            f"the event files in {folder!r} do not say what a checkpoint costs; train "
            "with this runtime until it has saved one, then ask again"
        )
    return Costs(
        count=sum("blocked_secs" in each for each in measured),
        blocked_secs=blocked_secs,
        write_secs=median_of("write_secs") or 0.0,
        interval_secs=median_of("interval_secs"),
    )
