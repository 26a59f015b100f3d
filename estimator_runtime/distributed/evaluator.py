"""The evaluator of a cluster: evaluates each new checkpoint until the last one.

Unlike that of the frozen package, it ends when the training has ended. A checkpoint
that is being evaluated is locked, so that no other process deletes it. It is then
exported, and kept if it is one of the best.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint.best import BestCheckpoints, Criterion
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.config.options import TrainingOptions, best_mode_of
from estimator_runtime.distributed import peers
from estimator_runtime.distributed.finish_note import FinishNote, saved_step
from estimator_runtime.distributed.liveness import PeerLiveness, any_trainer
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.patching import frozen

_logger = logging.getLogger(__name__)
_POLL_SECS = 0.5
# A shared folder may show the note that the training has ended before it shows the new
# `checkpoint` file and listing: an NFS client refreshes its cache after at most 60 s.
_LATE_SECS = 60.0


class Evaluator(frozen.StockTrainingExecutor._Evaluator):
    """Evaluates and exports the newest checkpoint, as TensorFlow's evaluator does.

    The checkpoint cannot be deleted before it has been exported. If `keep_best` is set,
    the checkpoint is kept if it is one of the best.

    Args:
        estimator: The Estimator that evaluates.
        eval_spec: `tf.estimator.EvalSpec`.
        max_training_steps: The global step at which the training ends, or None.
    """

    def __init__(
        self,
        estimator: tf.estimator.Estimator,
        eval_spec: tf.estimator.EvalSpec,
        max_training_steps: int | None,
    ) -> None:
        super().__init__(estimator, eval_spec, max_training_steps)
        criterion = criterion_of(estimator.config)
        self._best = (
            None
            if criterion is None
            else BestCheckpoints(estimator.model_dir, criterion)
        )

    def evaluate_and_export(self) -> tuple[Any, list[Any]]:
        """Evaluate the newest checkpoint, if it is new, and export it.

        Returns:
            TensorFlow's `_EvalResult`, and the result of each exporter.
        """
        with locks.together():
            result, exports = super().evaluate_and_export()
            if result.metrics and self._best is not None:
                self._best.offer(result.checkpoint_path, numbers(result.metrics))
        return result, exports

    def run(self, listener: Any, clock: Any = time) -> None:
        """Evaluate each new checkpoint until the last one has been evaluated.

        Args:
            listener: TensorFlow's `_ContinuousEvalListener`.
            clock: Has `monotonic` and `sleep`.

        Raises:
            PeerTimeoutError: If no trainer is there, and nothing is written to the
                model directory, for longer than a session may take to be created
                (`session_creation_timeout_secs`). It is raised only after the newest
                checkpoint, which may be the last, has been evaluated.
        """
        self._clock, self._note = clock, FinishNote(self._estimator.model_dir)
        self._liveness = _liveness_for(self._estimator, clock.monotonic)
        self._seen = _sizes(self._estimator.model_dir)
        absence = self._pause(self._eval_spec.start_delay_secs)
        while True:
            start = clock.monotonic()
            last_step = self._note.step()
            if last_step is not None:
                self._wait_for_last(last_step)
                self._expect_the_end(last_step)
            if not listener.before_eval():
                return
            result, _ = self.evaluate_and_export()
            if result.metrics:
                best = TrainingOptions.of(self._estimator.config).best_metric
                reporting.progress(metrics=numbers(result.metrics), best_metric=best)
            if not listener.after_eval(result):
                return
            # The last checkpoint was already visible when this evaluation began.
            if last_step is not None or self._has_reached_max_steps(result):
                TRAINING_LOG.info("the last checkpoint has been evaluated")
                return
            # An evaluation takes time: the trainers, or the note, may be there by now.
            goes_on = self._note.step() is None
            if absence is not None and goes_on and not self._liveness.has_any():
                raise absence
            elapsed = clock.monotonic() - start
            absence = self._pause(
                max(_POLL_SECS, self._eval_spec.throttle_secs - elapsed)
            )

    def _has_reached_max_steps(self, result: Any) -> bool:
        step = (result.metrics or {}).get(tf.compat.v1.GraphKeys.GLOBAL_STEP)
        last = self._max_training_steps
        return bool(step and last and step >= last)

    def _expect_the_end(self, last_step: int) -> None:
        """Make the next evaluation the final one, even if training stopped early."""
        self._max_training_steps = last_step
        if self._eval_spec.exporters and not self.is_final_export_triggered:
            # It may have been evaluated already, but not exported as the last one.
            self._previous_ckpt_path = None

    def _wait_for_last(self, last_step: int) -> None:
        """Wait until the folder shows the last checkpoint, for at most `_LATE_SECS`."""
        deadline = self._clock.monotonic() + _LATE_SECS
        while (shown := _shown_step(self._estimator)) < last_step:
            if self._clock.monotonic() >= deadline:
                _logger.warning(
                    "the training has ended at step %d, but %r has no checkpoint of "
                    "that step after %g s; evaluating the newest one, of step %d, as "
                    "the last",
                    last_step,
                    tf.compat.as_str_any(self._estimator.model_dir),
                    _LATE_SECS,
                    shown,
                )
                return
            self._clock.sleep(_POLL_SECS)

    def _pause(self, secs: float) -> PeerTimeoutError | None:
        """Wait for some seconds, but not beyond the end of the training.

        Returns:
            The error to raise if the trainers have been absent for too long, else None.
        """
        until = self._clock.monotonic() + secs
        while self._clock.monotonic() < until and self._note.step() is None:
            try:
                self._liveness.check_if_due()
            except PeerTimeoutError as error:
                before, self._seen = self._seen, _sizes(self._estimator.model_dir)
                if self._seen == before:
                    return error
                self._liveness.reset()  # they train where they cannot be reached
            left = until - self._clock.monotonic()
            self._clock.sleep(min(_POLL_SECS, max(0.0, left)))
        return None


def _liveness_for(
    estimator: tf.estimator.Estimator, clock: Callable[[], float]
) -> PeerLiveness:
    """Return the `PeerLiveness` of the trainers whose checkpoints are evaluated."""
    if reporting.is_on():
        # The launcher knows which trainers are there or wait for their restart, and
        # ends this evaluator when no trainer is left.
        return PeerLiveness([], clock=clock)
    # With a strategy, the RunConfig of an evaluator has no cluster.
    cluster = peers.this_task().cluster
    timeout_secs = estimator.config.session_creation_timeout_secs
    meanwhile = "this evaluator waits for them"
    return PeerLiveness([any_trainer(cluster, timeout_secs, meanwhile)], clock=clock)


def _shown_step(estimator: tf.estimator.Estimator) -> int:
    path = estimator.latest_checkpoint()
    try:
        return saved_step(path) if path else 0
    except (tf.errors.OpError, ValueError):  # some of its files are not visible yet
        return 0


def _sizes(folder: str | bytes | os.PathLike[str]) -> dict[str, int] | None:
    """Return the size of each file in a folder (checkpoints, summaries), by name."""
    folder = tf.compat.as_str_any(folder)
    try:
        names = tf.io.gfile.listdir(folder)
        return {n: tf.io.gfile.stat(os.path.join(folder, n)).length for n in names}
    except tf.errors.OpError:  # no such folder yet, or a file was just being removed
        return None


def criterion_of(config: tf.estimator.RunConfig) -> Criterion | None:
    """Return the `Criterion` of a config, or None if it keeps no best checkpoints."""
    own = TrainingOptions.of(config)
    if not own.keep_best or own.best_metric is None:
        return None
    mode = best_mode_of(own.best_metric, own.best_mode)
    return Criterion(keep=own.keep_best, metric=own.best_metric, mode=mode)


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are a single number, as floats by name.

    The others are arrays, and serialized summaries, which go to TensorBoard unchanged.
    """
    return {
        name: float(value)
        for name, value in metrics.items()
        if np.ndim(value) == 0 and not isinstance(value, (bytes, str))
    }
