"""Hooks that log steps/sec, and examples/sec if the graph has a known batch size."""

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import Summary

_logger = logging.getLogger("tensorflow")  # TensorFlow logs its own step rate there
_EXAMPLES_PER_SEC = "examples/sec"  # TensorFlow's name for it, in ExamplesPerSecondHook


class StepRateHook(tf.compat.v1.train.StepCounterHook):
    """TensorFlow's StepCounterHook, which also logs and summarizes examples/sec.

    The batch size is the first dimension that all outputs of the input iterator share
    in the graph. If it is unknown (a `Dataset.batch` without `drop_remainder`),
    examples/sec are not reported. In a cluster, all tasks are assumed to have the batch
    size of this one.

    Args:
        batches_per_step: Batches in one global step; with a SyncReplicasOptimizer, the
            number of batches that it aggregates.
        **kwargs: Arguments of TensorFlow's hook.

    Attributes:
        scheduled_as: The class whose schedule it follows; see `loop.hooks.schedule`.
    """

    scheduled_as = tf.compat.v1.train.StepCounterHook

    def __init__(self, *, batches_per_step: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._batches_per_step = batches_per_step
        self._step_before_last = None

    def begin(self) -> None:
        """Find the batch size, and do what TensorFlow's hook does."""
        super().begin()
        self._batch_size = batch_size(tf.compat.v1.get_default_graph())

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Measure the rate as TensorFlow's hook does.

        TensorFlow warns if a step does not increase the global step. This hook warns
        only if the previous step did not increase it either, because two consecutive
        steps may read the same value: one after its own increase, the next before it.
        """
        step = run_values.results
        last_step = self._last_global_step  # type: ignore[has-type]
        if step == last_step != self._step_before_last:
            self._last_global_step = None
        self._step_before_last = last_step
        super().after_run(run_context, run_values)

    def _log_and_record(
        self, elapsed_steps: int, elapsed_time: float, global_step: int
    ) -> None:
        super()._log_and_record(elapsed_steps, elapsed_time, global_step)
        if self._batch_size is None:
            return
        examples = elapsed_steps * self._batches_per_step * self._batch_size
        rate = examples / elapsed_time
        _logger.info("%s: %g", _EXAMPLES_PER_SEC, rate)
        if self._summary_writer is not None:
            value = Summary.Value(tag=_EXAMPLES_PER_SEC, simple_value=rate)
            self._summary_writer.add_summary(Summary(value=[value]), global_step)


class TaskRateHook(tf.compat.v1.train.SessionRunHook):
    """Logs the step rate of one task; StepRateHook covers all tasks.

    Args:
        every_n_steps: Steps of this task between two log lines.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        every_n_steps: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._every_n_steps = every_n_steps
        self._clock = clock
        self._steps = 0
        self._start: float | None = None

    def begin(self) -> None:
        """Find the batch size."""
        self._batch_size = batch_size(tf.compat.v1.get_default_graph())

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Count the step; the first one starts the clock."""
        if self._start is None:
            self._start = self._clock()
            return
        self._steps += 1
        if self._steps < self._every_n_steps:
            return
        now = self._clock()
        rate = self._steps / (now - self._start)
        self._steps, self._start = 0, now
        _logger.info("steps/sec of this task: %g", rate)
        if self._batch_size is not None:
            _logger.info("examples/sec of this task: %g", rate * self._batch_size)


def batch_size(graph: tf.Graph) -> int | None:
    """Return how many examples a step of the graph trains on, or None if unknown.

    The result is the static batch size of the input iterators times the number of
    replicas in the strategy whose scope this is called in.
    """
    sizes = {
        # With TensorFlow 1 shapes, `shape[0]` is not hashable.
        output.shape.as_list()[0] if output.shape.rank else None
        for op in graph.get_operations()
        if op.type == "IteratorGetNext"
        for output in op.outputs
    }
    size = sizes.pop() if len(sizes) == 1 else None
    return size and size * tf.distribute.get_strategy().num_replicas_in_sync
