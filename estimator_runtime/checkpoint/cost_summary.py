"""What a checkpoint has cost, told to the log and to TensorBoard."""

import dataclasses

from tensorflow.core.framework.summary_pb2 import Summary

from estimator_runtime.checkpoint.measured import Cost
from estimator_runtime.training_log import TRAINING_LOG


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measures(Cost):
    """What one checkpoint has cost.

    Attributes:
        step: Its global step.
        bytes: Size of the values, in bytes.
    """

    step: int
    bytes: int

    def tell(self, summary_writer):
        """Write them to the log, and as scalars to an event file."""
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
        # So that TensorBoard is at most one checkpoint behind; by itself the file is
        # written out every two minutes.
        summary_writer.flush()
