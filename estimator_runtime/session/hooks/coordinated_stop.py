"""Stops the tasks of a multi-worker strategy after the same step."""

import itertools
import logging
import threading
from typing import Any

import tensorflow as tf

from estimator_runtime import threads
from estimator_runtime.config import waits
from estimator_runtime.distributed import coordination
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.signals import request

_logger = logging.getLogger(__name__)
_numbers = itertools.count()  # session numbers, which are the same in each task


class CoordinatedStopHook(tf.compat.v1.train.SessionRunHook):
    """Requests a stop after a step that all tasks agree on before any of them runs it.

    A step of such a strategy ends when all tasks have run it. If one task left before
    the others, they would wait forever. So a task that is told to end after n steps
    proposes n + 1 as the last step, and runs no step until every task has read the
    proposal. No task can be past n + 1, because that step needs all tasks. If there are
    several proposals, the first one counts.

    In a program without eager execution, the tasks cannot communicate. A task that is
    told to end then does so at once, and only the last checkpoint remains. The tasks of
    other strategies do not need to agree.

    Args:
        context: The distribute coordinator's context for this task.
    """

    def __init__(self, context: Any) -> None:
        self._peers = coordination.peers(context)
        self._is_chief = context.is_chief
        self._note = coordination.SharedNote(f"stop {next(_numbers)}", context)
        self._stop_at: int | None = None
        self._steps = 0
        self._all_know = threading.Event()
        self._watch: request.Watch | None = None
        self._has_proposed = False

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Start to listen for a proposal from any task."""
        self._watch = request.Watch()
        if self._peers and self._note.is_open:
            threads.start("stop", self._listen)

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Propose a last step if this task is told to end; stop after the last step."""
        self._steps += 1
        if self._watch is None or run_context.stop_requested:
            return
        if self._stop_at is None and self._watch.is_requested:
            if not self._peers:
                run_context.request_stop()
                return
            if not self._note.is_open:
                _logger.error(
                    "without eager execution, the tasks of this strategy cannot agree "
                    "on a last step: ending at once, without a checkpoint of this one"
                )
                request.give_up()
            # The signal number determines how the other tasks end.
            self._has_proposed = True
            self._note.post(f"{self._steps + 1} {request.requested()}")
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
                request.give_up()
        if self._stop_at is not None and self._steps >= self._stop_at:
            run_context.request_stop()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Stop listening, and suspend the grace period while the last step is saved."""
        if self._watch is not None:
            self._watch.hold()
        if self._peers and self._note.is_open and self._is_chief:
            # The chief hosts the board: at the end of another task, it may be gone.
            self._note.post("")

    def _listen(self) -> None:
        try:
            text = self._note.read()
            if text:
                stop_at, number = map(int, text.split())
                self._stop_at = stop_at
                request.request(number)
                self._note.acknowledge()
                if self._has_proposed:
                    self._note.wait_for_acknowledgements(self._peers)
        except tf.errors.OpError as error:  # the task that hosts the board is gone
            TRAINING_LOG.info("stops can no longer be coordinated: %s", error)
        finally:
            self._all_know.set()
