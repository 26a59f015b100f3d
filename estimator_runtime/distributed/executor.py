"""Run the task of this process: train, serve variables or evaluate until the end.

The classes here extend those of the frozen package. Unlike those, a ps and an evaluator
end when the training has ended. A checkpoint that is being evaluated is locked, so that
no other process deletes it. It is then exported, and kept if it is one of the best.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint.best import BestCheckpoints, Criterion
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.config import waits
from estimator_runtime.config.options import TrainingOptions, best_mode_of
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers
from estimator_runtime.distributed.finish_note import FinishNote, saved_step
from estimator_runtime.distributed.liveness import JobLiveness
from estimator_runtime.distributed.ps_shutdown import PsShutdown
from estimator_runtime.errors import ConfigError, PeerTimeoutError
from estimator_runtime.estimator import seam
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.signals import exit

_logger = logging.getLogger(__name__)
_POLL_SECS = 0.5
# A shared folder may show the note that the training has ended before it shows the new
# `checkpoint` file and listing: an NFS client refreshes its cache after at most 60 s.
_LATE_SECS = 60.0


class Evaluator(seam.StockTrainingExecutor._Evaluator):
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


@seam.replaces("tensorflow_estimator.python.estimator.training")
class _TrainingExecutor(seam.StockTrainingExecutor):
    """Runs the task of this process; see `train_and_evaluate`."""

    _Evaluator = Evaluator
    clock: ClassVar[Any] = time  # has `monotonic` and `sleep`

    def run_ps(self) -> NoReturn:
        """Serve variables until the training has ended and all trainers have left.

        Raises:
            SystemExit: When it is done, with status 0, or with 143 if SIGTERM released
                it. A ps never returns to the program: with TensorFlow's own, the code
                after the training has never run on a ps either.
            PeerTimeoutError: If no trainer is there for longer than a session may take
                to be created (`session_creation_timeout_secs`).
        """
        config = self._estimator.config
        note = FinishNote(self._estimator.model_dir)
        shutdown = PsShutdown()
        server = self._start_std_server(config)
        cluster = config.cluster_spec.as_dict()
        serve_until_finished(note, cluster, _patience(config), shutdown)
        del server
        shutdown.restore()
        sys.exit(shutdown.exit_status)

    def _start_std_server(self, config: tf.estimator.RunConfig) -> tf.distribute.Server:
        try:
            return super()._start_std_server(config)
        except tf.errors.UnknownError as error:
            address = config.cluster_spec.task_address(config.task_type, config.task_id)
            raise ConfigError(
                f"TF_CONFIG: {config.task_type} {config.task_id} cannot listen on "
                f"{address!r}: {error.message}. Is another program, or another task, "
                "using the port? Give this task one that is free"
            ) from error

    def _start_distributed_training(
        self,
        saving_listeners: Sequence[tf.estimator.CheckpointSaverListener] | None = None,
    ) -> None:
        config = self._estimator.config
        if not seam.is_google_env():
            self._start_std_server(config)
        if config.task_type == TaskType.WORKER:
            each, longest = seam.start_delays()
            delay = waits.start_delay_secs(each) * (config.task_id + 1)
            own_longest = config.experimental_max_worker_delay_secs
            delay = min(delay, longest if own_longest is None else int(own_longest))
            if delay > 0:
                TRAINING_LOG.info("waiting %g s before the training starts", delay)
                self.clock.sleep(delay)
        self._estimator.train(
            input_fn=self._train_spec.input_fn,
            max_steps=self._train_spec.max_steps,
            hooks=[*self._train_spec.hooks, *self._train_hooks],
            saving_listeners=saving_listeners,
        )

    def _start_continuous_evaluation(self) -> None:
        """Evaluate each new checkpoint until the last one has been evaluated.

        Raises:
            PeerTimeoutError: If no trainer is there, and nothing is written to the
                model directory, for longer than a session may take to be created
                (`session_creation_timeout_secs`). It is raised only after the newest
                checkpoint, which may be the last, has been evaluated.
        """
        seam.assert_eval_spec(self._eval_spec)
        note = FinishNote(self._estimator.model_dir)
        liveness = job_liveness_for(self._estimator, self.clock.monotonic)
        evaluator = self._Evaluator(
            self._estimator, self._eval_spec, self._train_spec.max_steps
        )
        absence = self._pause(self._eval_spec.start_delay_secs, note, liveness)
        while True:
            start = self.clock.monotonic()
            last_step = note.step()
            if last_step is not None:
                self._wait_for_last(last_step)
                _expect_the_end(evaluator, last_step, self._eval_spec.exporters)
            if not self._continuous_eval_listener.before_eval():
                return
            result, _ = evaluator.evaluate_and_export()
            if result.metrics:
                best = TrainingOptions.of(self._estimator.config).best_metric
                reporting.progress(metrics=numbers(result.metrics), best_metric=best)
            if not self._continuous_eval_listener.after_eval(result):
                return
            if self._is_last(result, last_step):
                TRAINING_LOG.info("the last checkpoint has been evaluated")
                return
            # An evaluation takes time: the trainers, or the note, may be there by now.
            if absence and note.step() is None and not liveness.has_trainer():
                raise absence
            elapsed = self.clock.monotonic() - start
            throttle = max(_POLL_SECS, self._eval_spec.throttle_secs - elapsed)
            absence = self._pause(throttle, note, liveness)

    def _is_last(self, result: Any, last_step: int | None) -> bool:
        if last_step is not None:
            # The last checkpoint was already visible when this evaluation began.
            return True
        step = (result.metrics or {}).get(tf.compat.v1.GraphKeys.GLOBAL_STEP)
        max_steps = self._train_spec.max_steps
        return bool(step and max_steps and step >= max_steps)

    def _wait_for_last(self, last_step: int) -> None:
        """Wait until the folder shows the last checkpoint, for at most `_LATE_SECS`."""
        deadline = self.clock.monotonic() + _LATE_SECS
        while (shown := _shown_step(self._estimator)) < last_step:
            if self.clock.monotonic() >= deadline:
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
            self.clock.sleep(_POLL_SECS)

    def _pause(
        self, secs: float, note: FinishNote, liveness: JobLiveness
    ) -> PeerTimeoutError | None:
        """Wait for some seconds, but not beyond the end of the training.

        Returns:
            The error to raise if the trainers have been absent for too long, else None.
        """
        until = self.clock.monotonic() + secs
        while self.clock.monotonic() < until and note.step() is None:
            try:
                liveness.check()
            except PeerTimeoutError as error:
                return error
            self.clock.sleep(min(_POLL_SECS, max(0.0, until - self.clock.monotonic())))
        return None


def job_liveness_for(
    estimator: tf.estimator.Estimator, clock: Callable[[], float] = time.monotonic
) -> JobLiveness:
    """Return the `JobLiveness` of the trainers whose checkpoints are evaluated."""
    who = "this evaluator"
    if reporting.is_on():
        # The launcher knows which trainers are there, even at addresses that they got
        # in a restart, and ends this evaluator when no trainer is left.
        return JobLiveness(who, {}, None, clock=clock)
    return JobLiveness(
        who,
        # With a strategy, the RunConfig of an evaluator has no cluster.
        peers.this_task().cluster,
        _patience(estimator.config),
        work=lambda: _sizes(estimator.model_dir),
        clock=clock,
    )


def _patience(config: tf.estimator.RunConfig) -> float | None:
    """Return how many seconds a task waits for trainers; None if there is no limit."""
    # The configs of a program's own tests may have any value there.
    secs = config.session_creation_timeout_secs
    return secs if isinstance(secs, (int, float)) else None


def serve_until_finished(
    note: FinishNote,
    cluster: Mapping[str, Sequence[str]],
    timeout_secs: float | None,
    shutdown: PsShutdown,
) -> None:
    """Wait until the training has ended, or is stopped, and all trainers have left.

    Under a launcher, only the launcher says when that is. The program may train again,
    and between two runs of its chief no trainer may be there.

    Args:
        note: The `FinishNote` of the training.
        cluster: Job name to addresses.
        timeout_secs: How long there may be no trainer at all; None for no limit.
        shutdown: The handlers of the signals that end this ps.

    Raises:
        PeerTimeoutError: If there is no trainer for longer than `timeout_secs`.
    """
    liveness = JobLiveness("this ps", cluster, timeout_secs)
    while True:
        is_noted = not shutdown.is_by_launcher and note.step() is not None
        is_over = shutdown.number is not None or is_noted
        if is_over and not liveness.has_trainer():
            is_ended = note.step() is not None
            why = "the training has ended" if is_ended else "no trainer is left"
            TRAINING_LOG.info("%s; this ps is done", why)
            return
        if shutdown.is_overdue:
            _logger.warning(
                "the grace period of this ps is over (%s); it ends before the trainers",
                waits.PS_GRACE_VARIABLE,
            )
            return
        liveness.check()
        shutdown.wait(_POLL_SECS)


def leave_when_finished(
    note: FinishNote,
    cluster: Mapping[str, Sequence[str]],
    timeout_secs: float | None,
    shutdown: PsShutdown,
) -> NoReturn:
    """End this process when the training has ended; for a ps that TensorFlow runs.

    TensorFlow's distribute coordinator waits for its server in a call that never
    returns. The arguments are those of `serve_until_finished`.
    """
    try:
        serve_until_finished(note, cluster, timeout_secs, shutdown)
        status = shutdown.exit_status
    except PeerTimeoutError as error:
        message = str(error)
        exit.call_and_flush(lambda: _logger.error("%s", message))
        status = 1
    exit.end(status)


def _shown_step(estimator: tf.estimator.Estimator) -> int:
    path = estimator.latest_checkpoint()
    try:
        return saved_step(path) if path else 0
    except (tf.errors.OpError, ValueError):  # some of its files are not visible yet
        return 0


def _expect_the_end(
    evaluator: Evaluator, last_step: int, exporters: Sequence[tf.estimator.Exporter]
) -> None:
    """Make the next evaluation the final one, even if the training stopped early."""
    evaluator._max_training_steps = last_step
    if exporters and not evaluator.is_final_export_triggered:
        # It may have been evaluated already, but not exported as the last one.
        evaluator._previous_ckpt_path = None


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
