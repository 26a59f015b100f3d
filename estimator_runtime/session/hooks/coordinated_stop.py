"""Stops the tasks of a multi-worker strategy together, when one is told to end."""

import itertools
import logging
import threading

import tensorflow as tf

from estimator_runtime import preemption, waits
from estimator_runtime.compat import agreement
from estimator_runtime.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
_numbers = itertools.count()  # of the sessions of this process, the same in each task


class AgreedStopHook(tf.compat.v1.train.SessionRunHook):
    """Asks for a stop after a step that all tasks know, before any of them has run it.

    A step of such a strategy ends when all tasks have run it: where one leaves earlier
    than the others, those wait for ever. So the task that is told to end, having run n
    steps, proposes n + 1, and runs no more until every task has read that. Nobody can
    have gone beyond n + 1, which needs them all. Of several proposals the first counts.

    Where the tasks cannot talk, in a program without eager execution, the one that is
    told to end does so at once, and the last checkpoint is what is left. The tasks of
    other strategies need not agree.

    Args:
        context: The distribute coordinator's context of this task.
    """

    def __init__(self, context):
        self._peers = agreement.peers(context)
        self._board = agreement.Board(f"stop {next(_numbers)}", context)
        self._stop_at: int | None = None
        self._steps = 0
        self._all_know = threading.Event()
        self._watch: preemption.Watch | None = None
        self._has_proposed = False

    def after_create_session(self, session, coord):
        """Listen to the other tasks from here on."""
        self._watch = preemption.Watch()
        if self._peers and self._board.is_open:
            threading.Thread(
                target=self._listen, name="estimator_runtime stop", daemon=True
            ).start()

    def after_run(self, run_context, run_values):
        """Ask for the stop, where it is due."""
        self._steps += 1
        if self._watch is None or run_context.stop_requested:
            return
        if self._stop_at is None and self._watch.is_requested:
            if not self._peers:
                run_context.request_stop()
                return
            if not self._board.is_open:
                _logger.error(
                    "without eager execution the tasks of this strategy cannot agree "
                    "on a last step: ending at once, without a checkpoint of this one"
                )
                preemption.give_up()
            # The number tells the others how to end.
            self._has_proposed = True
            self._board.post(f"{self._steps + 1} {preemption.requested()}")
            limit_secs = waits.stop_grace_secs()
            if not self._all_know.wait(limit_secs):
                names = ", ".join(f"{job} {index}" for job, index in self._peers)
                _logger.error(
                    "not all of %s have agreed to stop within %g s (%s): ending at "
                    "once, without a checkpoint of this step",
                    names,
                    limit_secs,
                    waits.STOP_GRACE_VARIABLE,
                )
                preemption.give_up()
        if self._stop_at is not None and self._steps >= self._stop_at:
            run_context.request_stop()

    def end(self, session):
        """Stop listening; the last step is saved, however long that takes."""
        if self._watch is not None:
            self._watch.hold()
        if self._peers and self._board.is_open:
            self._board.post("")

    def _listen(self):
        try:
            text = self._board.read()
            if text:
                stop_at, number = map(int, text.split())
                self._stop_at = stop_at
                preemption.request(number)
                self._board.acknowledge()
                if self._has_proposed:
                    self._board.wait_for_acknowledgements(self._peers)
        except tf.errors.OpError as error:  # the task that keeps the board is gone
            TRAINING_LOG.info("nobody can be told to stop any more: %s", error)
        finally:
            self._all_know.set()
