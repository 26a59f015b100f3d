"""What a checkpoint has cost, told to the log and to TensorBoard."""

import dataclasses
import logging

from tensorflow.core.framework.summary_pb2 import Summary

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measures:
    """What one checkpoint has cost.

    Attributes:
        step: Its global step.
        bytes: Size of the values, in bytes.
        blocked_secs: How long training was kept from going on, in seconds.
        write_secs: How long it took until it was on the disk, in seconds; while
            training went on, or 0 if that is in `blocked_secs`.
        interval_secs: Seconds since the checkpoint before; None for the first.
    """

    step: int
    bytes: int
    blocked_secs: float
    write_secs: float
    interval_secs: float | None

    @property
    def cost_secs(self):
        """What it has cost at most: a write takes time from training, on few cores."""
        return self.blocked_secs + self.write_secs

    def tell(self, summary_writer):
        """Write them to the log, and as scalars to an event file."""
        texts = [f"training waited {self.blocked_secs:.4f} s"]
        if self.write_secs:
            texts.append(f"the background wrote for {self.write_secs:.4f} s")
        if self.interval_secs is not None:
            texts.append(f"{self.interval_secs:.1f} s after the one before")
        _logger.info(
            "Checkpoint of step %d, %d bytes: %s",
            self.step,
            self.bytes,
            ", ".join(texts),
        )
        scalars = {
            "checkpoint/blocked_secs": self.blocked_secs,
            "checkpoint/write_secs": self.write_secs,
            "checkpoint/bytes": self.bytes,
            "checkpoint/interval_secs": self.interval_secs,
        }
        values = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if value is not None
        ]
        summary_writer.add_summary(Summary(value=values), self.step)
