"""Steps per second, and examples per second where the graph tells the batch size."""

import logging

import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import Summary

_logger = logging.getLogger("tensorflow")  # beside TensorFlow's own step rate
_EXAMPLES_PER_SEC = "examples/sec"  # TensorFlow's name for it, in ExamplesPerSecondHook


class StepRateHook(tf.compat.v1.train.StepCounterHook):
    """TensorFlow's StepCounterHook, which also logs and summarizes examples/sec.

    The batch size is the first dimension that all outputs of the input iterator share
    in the graph; where that is unknown (a `Dataset.batch` without `drop_remainder`),
    there are no examples/sec.
    """

    def begin(self):
        """Find the batch size; as TensorFlow's hook otherwise."""
        super().begin()
        self._batch_size = batch_size(tf.compat.v1.get_default_graph())

    def _log_and_record(self, elapsed_steps, elapsed_time, global_step):
        super()._log_and_record(elapsed_steps, elapsed_time, global_step)
        if self._batch_size is None:
            return
        rate = elapsed_steps * self._batch_size / elapsed_time
        _logger.info("%s: %g", _EXAMPLES_PER_SEC, rate)
        if self._summary_writer is not None:
            value = Summary.Value(tag=_EXAMPLES_PER_SEC, simple_value=rate)
            self._summary_writer.add_summary(Summary(value=[value]), global_step)


def batch_size(graph):
    """Give the batch size that the graph's input iterator is known to have, or None."""
    sizes = {
        output.shape[0] if output.shape.rank else None
        for op in graph.get_operations()
        if op.type == "IteratorGetNext"
        for output in op.outputs
    }
    return sizes.pop() if len(sizes) == 1 else None
