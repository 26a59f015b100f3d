"""Watchdogs that end a training when a task it needs does not answer."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.config import waits
from estimator_runtime.distributed import peers
from estimator_runtime.distributed.finish_note import FinishNote
from estimator_runtime.distributed.liveness import (
    LOOK_EVERY_SECS,
    Concern,
    PeerLiveness,
)
from estimator_runtime.distributed.liveness import concerns as concerns_of
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.preemption import exit

_logger = logging.getLogger(__name__)


def hooks_of(
    master: str, max_wait_secs: float | None, checkpoint_dir: Any
) -> list[PeerWatchdogHook]:
    """Return the hooks that watch other tasks for a training.

    Args:
        master: Session target; "" watches no task.
        max_wait_secs: How long the chief may be missing; None for no limit.
        checkpoint_dir: Folder in which the end of the training is recorded, or None.
    """
    if not master:
        return []
    task = peers.this_task()
    concerns = concerns_of(
        task.cluster,
        task.task_type,
        task.task_index,
        waits.peer_timeout_secs(),
        max_wait_secs,
    )
    if not concerns:
        return []
    note = FinishNote(checkpoint_dir) if checkpoint_dir else None
    if any(concern.is_partner for concern in concerns):
        return [PartnerWatchdogHook(concerns, note)]
    return [PeerWatchdogHook(concerns, note)]


class PeerWatchdogHook(tf.compat.v1.train.SessionRunHook):
    """Checks on a separate thread whether the tasks that a step may need are alive.

    It checks only while a session is open and the training continues, because session
    creators have their own deadlines. When a task has been missing for too long, this
    process exits with status 1, because there is no other way to end a step that hangs
    in TensorFlow. Only the last checkpoint remains.

    Args:
        concerns: The `liveness.Concern`s of this task.
        note: The `FinishNote` of the training; None if its end is not recorded.
    """

    def __init__(
        self, concerns: Sequence[Concern], note: FinishNote | None = None
    ) -> None:
        self._concerns, self._note = concerns, note
        self._is_over = False
        # The number of the running step; None between two steps, or if unknown.
        self._step: int | None = None
        self._training: weakref.ref | None = None

    def belong_to(self, training: tf.compat.v1.train.MonitoredSession) -> None:
        """Stop checking once this MonitoredSession is closed, for any reason."""
        self._training = weakref.ref(training)

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Start checking."""
        threading.Thread(
            target=self._watch,
            args=(coord,),
            name="estimator_runtime peers",
            daemon=True,
        ).start()

    def steps_until_due(self, global_step: int) -> None:
        """Return None: this hook needs to see no step; see `loop.hook_schedule`."""

    def end(self, session: tf.compat.v1.Session) -> None:
        """Stop checking: the last save takes time, and other tasks may have ended."""
        self._is_over = True

    def _watch(self, coord: tf.train.Coordinator) -> None:
        liveness = PeerLiveness(self._concerns)
        while not self._wait_for_end(coord):
            # Only if a task is missing: this reads a file in the model directory.
            if liveness.misses_any and self._has_finished():
                return
            problem = liveness.look(self._step)
            if problem and not self._has_ended(coord) and not self._has_finished():
                _give_up(problem)

    def _wait_for_end(self, coord: tf.train.Coordinator) -> bool:
        """Wait until the next check; return True if the training has ended instead."""
        return coord.wait_for_stop(LOOK_EVERY_SECS) or self._is_over

    def _has_ended(self, coord: tf.train.Coordinator) -> bool:
        return coord.should_stop() or self._is_over

    def _has_finished(self) -> bool:
        return self._note is not None and self._note.step() is not None


class PartnerWatchdogHook(PeerWatchdogHook):
    """A PeerWatchdogHook for trainers that run each step together.

    TensorFlow then either does not notice that another trainer has ended, or keeps
    creating sessions that wait for it. So this hook checks until the training is
    closed, not only while a session is open.
    """

    def __init__(
        self, concerns: Sequence[Concern], note: FinishNote | None = None
    ) -> None:
        super().__init__(concerns, note)
        self._count = 0
        self._is_watching = False

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Start checking when the first session is created."""
        if not self._is_watching:
            self._is_watching = True
            super().after_create_session(session, coord)

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Record that a step starts, or restarts after a failure."""
        self._step = self._count

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Record that the step has ended."""
        self._count += 1
        self._step = None

    def _wait_for_end(self, coord: tf.train.Coordinator) -> bool:
        time.sleep(LOOK_EVERY_SECS)
        return self._has_ended(coord)

    def _has_ended(self, coord: tf.train.Coordinator) -> bool:
        if self._is_over or self._training is None:
            return self._is_over
        training = self._training()
        return training is None or training._sess is None


def _give_up(problem: str) -> None:
    exit.say(lambda: _logger.error("%s", problem))
    reporting.send_error(PeerTimeoutError)
    reporting.close()
    exit.end(1)
