"""The cost of a checkpoint, written to the log and for TensorBoard."""

import dataclasses
from typing import Any

from tensorflow.core.framework.summary_pb2 import Summary

from estimator_runtime.checkpoint.cost import Cost
from estimator_runtime.output.training_log import TRAINING_LOG


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

    def tell(self, summary_writer: Any) -> None:
        """Write the cost to the log, and as scalars to an event file.

        Args:
            summary_writer: The `tf.compat.v1.summary.FileWriter` of the event file.
        """
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
        # Otherwise the file is flushed only every two minutes, and TensorBoard would be
        # more than one checkpoint behind.
        summary_writer.flush()
