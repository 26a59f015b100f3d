"""The hook that logs and summarizes steps/sec."""

from typing import Any

import tensorflow as tf


class StepRateHook(tf.compat.v1.train.StepCounterHook):
    """TensorFlow's StepCounterHook, with fewer warnings of a global step that stays.

    TensorFlow warns if a step does not increase the global step. This hook warns only
    if the previous step did not increase it either, because two consecutive steps may
    read the same value: one after its own increase, the next before it.

    Attributes:
        scheduled_as: The class whose schedule it follows; see `loop.hooks.schedule`.
    """

    scheduled_as = tf.compat.v1.train.StepCounterHook

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._step_before_last = None

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Measure the rate as TensorFlow's hook does."""
        step = run_values.results
        last_step = self._last_global_step  # type: ignore[has-type]
        if step == last_step != self._step_before_last:
            self._last_global_step = None
        self._step_before_last = last_step
        super().after_run(run_context, run_values)
