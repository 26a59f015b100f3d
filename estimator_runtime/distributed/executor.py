"""What each task of a cluster does; the frozen package's way, but with an end."""

import logging
import os
import sys
import time

import tensorflow as tf

from estimator_runtime import last_words, peers, reporting, waits
from estimator_runtime.compat import frozen, seam
from estimator_runtime.errors import ConfigError, PeerTimeoutError
from estimator_runtime.evaluator import Evaluator, numbers
from estimator_runtime.finish import Finish, saved_step
from estimator_runtime.presence import Presence
from estimator_runtime.release import Release
from estimator_runtime.role import TaskType
from estimator_runtime.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)

_POLL_SECS = 0.5
# A shared folder may show the note that the training has ended, but neither the new
# `checkpoint` file nor the listing yet: NFS asks anew after 60 s at the latest.
_LATE_SECS = 60.0


@seam.replaces("tensorflow_estimator.python.estimator.training")
class _TrainingExecutor(frozen.StockTrainingExecutor):
    """Runs the task of this process; see `train_and_evaluate`."""

    _Evaluator = Evaluator

    def run_ps(self):
        """Serve variables until the training has ended and all trainers have left.

        Raises:
            SystemExit: Then, with status 0, or 143 if SIGTERM has released it: what a
                program does after its training was never done by a ps.
            PeerTimeoutError: If no trainer is there for as long as a session may take
                to be made (`session_creation_timeout_secs`).
        """
        config = self._estimator.config
        finish = Finish(self._estimator.model_dir)
        release = Release()
        server = self._start_std_server(config)
        cluster = config.cluster_spec.as_dict()
        serve_until_finished(finish, cluster, _patience(config), release)
        del server
        release.restore()
        sys.exit(release.exit_status)

    def _start_std_server(self, config):
        try:
            return super()._start_std_server(config)
        except tf.errors.UnknownError as error:
            address = config.cluster_spec.task_address(config.task_type, config.task_id)
            raise ConfigError(
                f"TF_CONFIG: {config.task_type} {config.task_id} cannot listen on "
                f"{address!r}: {error.message}. Is another program, or another task, "
                "using the port? Give this task one that is free"
            ) from error

    def _start_distributed_training(self, saving_listeners=None):
        config = self._estimator.config
        if not frozen.is_google_env():
            self._start_std_server(config)
        if config.task_type == TaskType.WORKER:
            each, longest = frozen.start_delays()
            delay = waits.start_delay_secs(each) * (config.task_id + 1)
            own_longest = config.experimental_max_worker_delay_secs
            delay = min(delay, longest if own_longest is None else int(own_longest))
            if delay > 0:
                TRAINING_LOG.info("waiting %g s before the training starts", delay)
                time.sleep(delay)
        self._estimator.train(
            input_fn=self._train_spec.input_fn,
            max_steps=self._train_spec.max_steps,
            hooks=[*self._train_spec.hooks, *self._train_hooks],
            saving_listeners=saving_listeners,
        )

    def _start_continuous_evaluation(self):
        """Evaluate each new checkpoint until the last one has been evaluated.

        Raises:
            PeerTimeoutError: If no trainer is there, and nothing is written to the
                model directory, for as long as a session may take to be made
                (`session_creation_timeout_secs`); not before the newest checkpoint has
                been evaluated, which may be the last.
        """
        frozen.assert_eval_spec(self._eval_spec)
        finish = Finish(self._estimator.model_dir)
        presence = presence_for(self._estimator)
        absence = _pause(self._eval_spec.start_delay_secs, finish, presence)
        evaluator = self._Evaluator(
            self._estimator, self._eval_spec, self._train_spec.max_steps
        )
        while True:
            start = time.monotonic()
            last_step = finish.step()
            if last_step is not None:
                _wait_for_last(self._estimator, last_step)
                _expect_the_end(evaluator, last_step, self._eval_spec.exporters)
            if not self._continuous_eval_listener.before_eval():
                return
            result, _ = evaluator.evaluate_and_export()
            if result.metrics:
                reporting.progress(metrics=numbers(result.metrics))
            if not self._continuous_eval_listener.after_eval(result):
                return
            if self._is_last(result, last_step):
                TRAINING_LOG.info("the last checkpoint has been evaluated")
                return
            # An evaluation takes its time: they, or the note, may be there by now.
            if absence and finish.step() is None and not presence.look():
                raise absence
            elapsed = time.monotonic() - start
            throttle = max(_POLL_SECS, self._eval_spec.throttle_secs - elapsed)
            absence = _pause(throttle, finish, presence)

    def _is_last(self, result, last_step):
        if last_step is not None:
            return True  # this evaluation began when the last checkpoint was to be seen
        step = (result.metrics or {}).get(tf.compat.v1.GraphKeys.GLOBAL_STEP)
        max_steps = self._train_spec.max_steps
        return bool(step and max_steps and step >= max_steps)


def presence_for(estimator, clock=time.monotonic):
    """Give the `Presence` of those who train what an evaluator evaluates.

    Args:
        estimator: The Estimator that evaluates.
        clock: Gives the time in seconds.
    """
    who = "this evaluator"
    if reporting.is_on():
        # The launcher knows who is there, also at addresses that they have only got
        # with a restart, and ends this one if nobody trains any more.
        return Presence(who, {}, None, clock=clock)
    return Presence(
        who,
        # Under a strategy its RunConfig knows nobody.
        peers.this_task().cluster,
        _patience(estimator.config),
        work=lambda: _sizes(estimator.model_dir),
        clock=clock,
    )


def _patience(config):
    """Give how long a task waits for those who train, in seconds; None for no limit."""
    # The configs of a program's own tests may have anything there.
    secs = config.session_creation_timeout_secs
    return secs if isinstance(secs, (int, float)) else None


def serve_until_finished(finish, cluster, timeout_secs, release):
    """Wait until the training has ended, or is stopped, and nobody is left who trained.

    A launcher says when that is: the program may train again, and between two runs of
    its chief nobody may be there.

    Args:
        finish: The `Finish` of the training.
        cluster: Job name to addresses.
        timeout_secs: How long there may be no trainer at all; None for no limit.
        release: The `Release` of this ps.

    Raises:
        PeerTimeoutError: If there is none for longer.
    """
    presence = Presence("this ps", cluster, timeout_secs)
    while True:
        is_noted = not release.is_by_launcher and finish.step() is not None
        is_over = release.number is not None or is_noted
        if is_over and not presence.look():
            is_ended = finish.step() is not None
            why = "the training has ended" if is_ended else "no trainer is left"
            TRAINING_LOG.info("%s; this ps is done", why)
            return
        if release.is_overdue:
            _logger.warning(
                "the grace of this ps is over (%s); it ends before those who train",
                waits.PS_GRACE_VARIABLE,
            )
            return
        presence.check()
        release.wait(_POLL_SECS)


def leave_when_finished(finish, cluster, timeout_secs, release):
    """End this process when the training has ended; for a ps that TensorFlow runs.

    TensorFlow's coordinator waits for its server in a call that never comes back.
    """
    try:
        serve_until_finished(finish, cluster, timeout_secs, release)
        status = release.exit_status
    except PeerTimeoutError as error:
        told = str(error)
        last_words.say(lambda: _logger.error("%s", told))
        status = 1
    last_words.end(status)


def _wait_for_last(estimator, last_step):
    """Wait until the folder shows the last checkpoint, or for longer than it may take.

    Args:
        estimator: The Estimator that evaluates.
        last_step: The global step in the training's last checkpoint.
    """
    deadline = time.monotonic() + _LATE_SECS
    while (shown := _shown_step(estimator)) < last_step:
        if time.monotonic() >= deadline:
            _logger.warning(
                "the training has ended at step %d, but %r shows no checkpoint of it "
                "after %g s; the newest there, of step %d, is taken for the last",
                last_step,
                tf.compat.as_str_any(estimator.model_dir),
                _LATE_SECS,
                shown,
            )
            return
        time.sleep(_POLL_SECS)


def _shown_step(estimator):
    path = estimator.latest_checkpoint()
    try:
        return saved_step(path) if path else 0
    except (tf.errors.OpError, ValueError):  # some of its files are not shown
        return 0


def _expect_the_end(evaluator, last_step, exporters):
    """Let the evaluation that follows be the final one, also where it stopped early."""
    evaluator._max_training_steps = last_step
    if exporters and not evaluator.is_final_export_triggered:
        # Evaluated already, maybe, but not exported as the last one.
        evaluator._previous_ckpt_path = None


def _pause(secs, finish, presence):
    """Wait, but not beyond the end of the training; give the error of giving it up."""
    until = time.monotonic() + secs
    while time.monotonic() < until and finish.step() is None:
        try:
            presence.check()
        except PeerTimeoutError as error:
            return error
        time.sleep(min(_POLL_SECS, max(0.0, until - time.monotonic())))
    return None


def _sizes(folder):
    """Give the sizes of the files in a folder, by name; checkpoints and summaries."""
    folder = tf.compat.as_str_any(folder)
    try:
        names = tf.io.gfile.listdir(folder)
        return {n: tf.io.gfile.stat(os.path.join(folder, n)).length for n in names}
    except tf.errors.OpError:  # not there yet, or one was being removed
        return None
