"""Ends this task when a task that it needs does not answer."""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting, threads
from estimator_runtime.config import waits
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import coordination, peers
from estimator_runtime.distributed.finish_note import FinishNote
from estimator_runtime.distributed.liveness import (
    CHECK_EVERY_SECS,
    PeerLiveness,
    WatchedPeer,
    watched_peers,
)
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.signals import exit

_logger = logging.getLogger(__name__)


def watchdogs(
    master: str,
    max_wait_secs: float | None,
    checkpoint_dir: Any,
    in_step: bool,
) -> list[PeerWatchdogHook]:
    """Return the hooks that watch other tasks for a training.

    Args:
        master: Session target; "" watches no task.
        max_wait_secs: How long the chief may be missing; None for no limit.
        checkpoint_dir: Folder in which the end of the training is recorded, or None.
        in_step: Whether a strategy makes the trainers run each step together.
    """
    if not master:
        return []
    task = peers.this_task()
    watched = watched_peers(
        task.cluster,
        task.task_type,
        task.task_index,
        waits.peer_timeout_secs(),
        max_wait_secs,
    )
    if not watched:
        return []
    if in_step and any(peer.is_partner for peer in watched):
        # The coordination service starts when all tasks have come.
        return [PartnerWatchdogHook(watched, were_seen=coordination.is_on())]
    note = FinishNote(checkpoint_dir) if checkpoint_dir else None
    return [PeerWatchdogHook(watched, note)]


@contextlib.contextmanager
def servers_watched() -> Iterator[None]:
    """Watch the parameter servers of this task's cluster while a session is created.

    If one of them stops answering, TensorFlow waits for it without a deadline. See
    `PeerWatchdogHook`, which watches them from then on.
    """
    task = peers.this_task()
    servers = {TaskType.PS: task.cluster.get(TaskType.PS, ())}
    timeout_secs = waits.peer_timeout_secs()
    watched = watched_peers(
        servers, task.task_type, task.task_index, timeout_secs, None
    )
    creation = tf.train.Coordinator()
    if watched:
        PeerWatchdogHook(watched).watch(creation)
    try:
        yield
    finally:
        creation.request_stop()


class PeerWatchdogHook(tf.compat.v1.train.SessionRunHook):
    """Checks on a separate thread whether the tasks that a step may need are alive.

    It checks while a session is open and the training continues; session creators use
    `servers_watched`. When a task has been missing for too long, this
    process exits with status 1, because there is no other way to end a step that hangs
    in TensorFlow. Only the last checkpoint remains.

    Args:
        watched: The `liveness.WatchedPeer`s of this task.
        note: The `FinishNote` of the training; None if its end is not recorded.
    """

    def __init__(
        self, watched: Sequence[WatchedPeer], note: FinishNote | None = None
    ) -> None:
        self._watched, self._note = watched, note
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
        self.watch(coord)

    def watch(self, coord: tf.train.Coordinator) -> None:
        """Check on a new thread until the coordinator is told to stop."""
        threads.start("peers", self._watch, coord)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Stop checking: the last save takes time, and other tasks may have ended."""
        self.stop()

    def stop(self) -> None:
        """Stop checking."""
        self._is_over = True

    def _liveness(self) -> PeerLiveness:
        return PeerLiveness(self._watched)

    def _watch(self, coord: tf.train.Coordinator) -> None:
        liveness = self._liveness()
        while not self._wait_for_end(coord):
            # Only if a task is missing: this reads a file in the model directory.
            if liveness.missing and self._has_finished():
                return
            problem = liveness.check(self._step)
            if problem and not self._has_ended(coord) and not self._has_finished():
                _give_up(problem)

    def _wait_for_end(self, coord: tf.train.Coordinator) -> bool:
        """Wait until the next check; return True if the training has ended instead."""
        return coord.wait_for_stop(CHECK_EVERY_SECS) or self._is_over

    def _has_ended(self, coord: tf.train.Coordinator) -> bool:
        return coord.should_stop() or self._is_over

    def _has_finished(self) -> bool:
        return self._note is not None and self._note.step() is not None


class PartnerWatchdogHook(PeerWatchdogHook):
    """A PeerWatchdogHook for trainers that run each step together.

    TensorFlow does not always notice that another trainer has ended. So this hook
    checks until the training is closed, not only while a session is open.

    Args:
        watched: The `liveness.WatchedPeer`s of this task.
        were_seen: Whether all other trainers have been there already. Then this hook
            checks from the creation of the session on, which needs them too.
    """

    def __init__(self, watched: Sequence[WatchedPeer], were_seen: bool) -> None:
        super().__init__(watched)
        self._were_seen = were_seen
        self._count = 0
        self._step = 0
        self._is_watching = False

    def begin(self) -> None:
        """Start checking, if the other trainers have been there."""
        if self._were_seen:
            self._start()

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Start checking at the latest when the session is created."""
        self._start()

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Record that a step starts."""
        self._step = self._count

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Record that the step has ended."""
        self._count += 1
        self._step = None

    def on_loss(self, error: tf.errors.OpError) -> None:
        """Wait until two more checks can have found the trainer that has ended.

        They name it, which TensorFlow's error does not, and end this process.

        Args:
            error: The error of the step.
        """
        if self._step is None:  # it is that of a hook
            return
        _logger.warning(
            "a step has failed with %s; checking whether a trainer has ended",
            type(error).__name__,
        )
        # One check may have begun before the error.
        time.sleep(3 * (CHECK_EVERY_SECS + peers.ANSWER_SECS))

    def _start(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self.watch(tf.train.Coordinator())

    def _liveness(self) -> PeerLiveness:
        return PeerLiveness(self._watched, were_seen=self._were_seen)

    def _wait_for_end(self, coord: tf.train.Coordinator) -> bool:
        time.sleep(CHECK_EVERY_SECS)
        return self._has_ended(coord)

    def _has_ended(self, coord: tf.train.Coordinator) -> bool:
        if self._is_over or self._training is None:
            return self._is_over
        training = self._training()
        return training is None or training._sess is None


def _give_up(problem: str) -> None:
    exit.call_and_flush(lambda: _logger.error("%s", problem))
    reporting.send_error(PeerTimeoutError)
    reporting.close()
    exit.end(1)
