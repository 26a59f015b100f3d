"""Hooks through which the tasks of a training act together.

They stop after a step that all tasks agree on when one is told to end, end this task
when one that it needs does not answer, and let the chief save what all have trained.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.config import waits
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import coordination, finish_note, peers, ps_notes
from estimator_runtime.distributed.finish_note import FinishNote
from estimator_runtime.distributed.liveness import (
    CHECK_EVERY_SECS,
    PeerLiveness,
    WatchedPeer,
    watched_peers,
)
from estimator_runtime.distributed.peers import Answer
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.signals import exit, request

_logger = logging.getLogger(__name__)
# A ps that is alive answers in milliseconds.
_PS_SECS = 30.0
# How often the chief looks whether others still train: first often, then seldom, since
# each look opens a session on a ps.
_POLL_SECS, _OFTEN_SECS, _LATER_POLL_SECS = 0.2, 1.0, 2.0
_LOOKS = 3  # that may fail in a row
# A trainer that does not answer for so long is gone, with its machine or its network.
_GONE_SECS = 15.0
_WAIT_NAMED_AFTER_SECS = 5.0
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
        self._board = coordination.SharedNote(f"stop {next(_numbers)}", context)
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
        if self._peers and self._board.is_open:
            threading.Thread(
                target=self._listen, name="estimator_runtime stop", daemon=True
            ).start()

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
            if not self._board.is_open:
                _logger.error(
                    "without eager execution, the tasks of this strategy cannot agree "
                    "on a last step: ending at once, without a checkpoint of this one"
                )
                request.give_up()
            # The signal number determines how the other tasks end.
            self._has_proposed = True
            self._board.post(f"{self._steps + 1} {request.requested()}")
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
        if self._peers and self._board.is_open and self._is_chief:
            # The chief hosts the board: at the end of another task, it may be gone.
            self._board.post("")

    def _listen(self) -> None:
        try:
            text = self._board.read()
            if text:
                stop_at, number = map(int, text.split())
                self._stop_at = stop_at
                request.request(number)
                self._board.acknowledge()
                if self._has_proposed:
                    self._board.wait_for_acknowledgements(self._peers)
        except tf.errors.OpError as error:  # the task that hosts the board is gone
            TRAINING_LOG.info("stops can no longer be coordinated: %s", error)
        finally:
            self._all_know.set()


def last_steps(
    is_chief: bool, checkpoint_dir: Any, config: tf.compat.v1.ConfigProto | None
) -> list[tf.compat.v1.train.SessionRunHook]:
    """Return the hook through which a chief saves the last steps of all trainers.

    Args:
        is_chief: Whether this task saves the checkpoints.
        checkpoint_dir: Folder in which it saves them, or None.
        config: The ConfigProto of the session, or None.
    """
    task = peers.this_task()
    workers = peers.tasks(task.cluster, (TaskType.WORKER,))
    if not (workers and task.cluster.get(TaskType.PS)):
        return []
    own = f"{task.task_type} {task.task_index}"
    workers.pop(own, None)
    awaited = workers if is_chief and checkpoint_dir else {}
    return [LastStepsHook(own, awaited, task.cluster, config)]


def _note_of(trainer: str) -> str:
    return f"estimator_runtime_ended_{trainer.replace(' ', '_')}"


class LastStepsHook(tf.compat.v1.train.SessionRunHook):
    """Makes the last checkpoint of a chief include the last steps of all trainers.

    TensorFlow's chief saves for the last time when its own data ends. What the others
    train after that is in no checkpoint. So each trainer leaves a note on the first ps
    when its training ends, and the chief waits for the notes before its last save. It
    does not wait for a worker that is not there, or does not answer for a while, nor
    once it is told to stop. A ps that does not take or give the notes ends the wait,
    but never the training: the hooks that save come after this one.

    The `end` of this hook has to run before that of the hooks that save.

    Args:
        own: The name of this task, such as "worker 0".
        awaited: The trainers to wait for, name to address; empty unless in a chief.
        cluster: Job name to addresses, with at least one ps.
        config: The ConfigProto of the training's session, or None.

    Raises:
        ConfigError: If the limit of the wait is not a number of seconds.
    """

    def __init__(
        self,
        own: str,
        awaited: Mapping[str, str],
        cluster: Mapping[str, Sequence[str]],
        config: tf.compat.v1.ConfigProto | None,
    ) -> None:
        self._own, self._awaited = _note_of(own), awaited
        self._on_ps = functools.partial(ps_notes.at_first_ps, cluster, config, _PS_SECS)
        self._limit_secs = waits.last_steps_secs()
        self._earlier: dict[str, str] | None = None  # notes from before this training
        self._heard: dict[str, float] = {}  # trainer to when it answered last
        self._silent: set[str] = set()
        self._failed_looks = 0

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Remove the note of an earlier training, and look at those of the others."""
        try:
            with self._on_ps() as notes:
                notes.remove(self._own)
                if self._earlier is None and self._awaited:
                    self._earlier = notes.read(*map(_note_of, self._awaited))
        except tf.errors.OpError as error:
            _logger.warning("the first ps takes no notes: %s", error)

    def steps_until_due(self, global_step: int) -> None:
        """Return None: this hook needs to see no step; see `loop.hook_schedule`."""

    def end(self, session: tf.compat.v1.Session) -> None:
        """Leave the note of this task, and wait for those of the others."""
        if request.is_requested():  # every ps may be about to end
            return
        reporting.expect_no_steps()
        try:
            with self._on_ps() as notes:
                # The number tells the trainings of a program apart. A task that has
                # restarted counts from 1 again: the rest makes its note a new one.
                notes.write(self._own, f"{finish_note.begun()} {uuid.uuid4().hex}")
            self._wait()
        except tf.errors.OpError as error:
            _logger.warning(
                "the first ps does not say which tasks still train; the last "
                "checkpoint may not have all their steps: %s",
                error,
            )

    def _wait(self) -> None:
        start, is_named = time.monotonic(), False
        self._heard = dict.fromkeys(self._awaited, start)
        while (left := self._training()) and not request.is_requested():
            waited, names = time.monotonic() - start, ", ".join(left)
            if waited >= self._limit_secs:
                _logger.warning(
                    "still training after %g s (%s): %s. The last checkpoint is saved "
                    "now, and has none of the steps that follow",
                    self._limit_secs,
                    waits.LAST_STEPS_VARIABLE,
                    names,
                )
                return
            if waited >= _WAIT_NAMED_AFTER_SECS and not is_named:
                is_named = True
                _logger.warning(
                    "the training of the chief has ended; before its last checkpoint, "
                    "it waits for %s, %g s at most (%s)",
                    names,
                    self._limit_secs,
                    waits.LAST_STEPS_VARIABLE,
                )
            time.sleep(_POLL_SECS if waited < _OFTEN_SECS else _LATER_POLL_SECS)

    def _training(self) -> list[str]:
        """Return the awaited trainers that are there and have not left their note."""
        there = self._there()
        if not there:
            return []
        try:
            with self._on_ps() as notes:
                found = notes.read(*map(_note_of, there))
        except tf.errors.OpError:
            self._failed_looks += 1
            if self._failed_looks == _LOOKS:
                raise
            return there
        self._failed_looks = 0
        return [name for name in there if not self._has_ended(_note_of(name), found)]

    def _there(self) -> list[str]:
        answers = peers.ask_all(list(self._awaited.values()), peers.ask)
        now, there = time.monotonic(), []
        for name, answer in zip(self._awaited, answers, strict=True):
            if answer is Answer.GIVEN:
                self._heard[name] = now
            silent_secs = now - self._heard[name]
            if answer is not Answer.REFUSED and silent_secs >= _GONE_SECS:
                if name not in self._silent:
                    self._silent.add(name)
                    _logger.warning(
                        "no answer from %s for %.0f s: the last checkpoint may not "
                        "have all of its steps",
                        name,
                        silent_secs,
                    )
            elif answer is not Answer.REFUSED:
                there.append(name)
        return there

    def _has_ended(self, note: str, found: Mapping[str, str]) -> bool:
        """Return whether a trainer's note is of this training, or of a later one."""
        text = found.get(note)
        if text is None:
            return False
        is_new = self._earlier is not None and text != self._earlier.get(note)
        return is_new or int(text.split()[0]) >= finish_note.begun()


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
    concerns = watched_peers(
        task.cluster,
        task.task_type,
        task.task_index,
        waits.peer_timeout_secs(),
        max_wait_secs,
    )
    if not concerns:
        return []
    if in_step and any(concern.is_partner for concern in concerns):
        # The coordination service starts when all tasks have come.
        return [PartnerWatchdogHook(concerns, were_seen=coordination.is_on())]
    note = FinishNote(checkpoint_dir) if checkpoint_dir else None
    return [PeerWatchdogHook(concerns, note)]


@contextlib.contextmanager
def servers_watched() -> Iterator[None]:
    """Watch the parameter servers of this task's cluster while a session is created.

    If one of them stops answering, TensorFlow waits for it without a deadline. See
    `PeerWatchdogHook`, which watches them from then on.
    """
    task = peers.this_task()
    servers = {TaskType.PS: task.cluster.get(TaskType.PS, ())}
    timeout_secs = waits.peer_timeout_secs()
    concerns = watched_peers(
        servers, task.task_type, task.task_index, timeout_secs, None
    )
    creation = tf.train.Coordinator()
    if concerns:
        PeerWatchdogHook(concerns).watch(creation)
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
        concerns: The `liveness.WatchedPeer`s of this task.
        note: The `FinishNote` of the training; None if its end is not recorded.
    """

    def __init__(
        self, concerns: Sequence[WatchedPeer], note: FinishNote | None = None
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
        self.watch(coord)

    def watch(self, coord: tf.train.Coordinator) -> None:
        """Check on a new thread until the coordinator is told to stop."""
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
        self.stop()

    def stop(self) -> None:
        """Stop checking."""
        self._is_over = True

    def _liveness(self) -> PeerLiveness:
        return PeerLiveness(self._concerns)

    def _watch(self, coord: tf.train.Coordinator) -> None:
        liveness = self._liveness()
        while not self._wait_for_end(coord):
            # Only if a task is missing: this reads a file in the model directory.
            if liveness.misses_any and self._has_finished():
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
        concerns: The `liveness.WatchedPeer`s of this task.
        were_seen: Whether all other trainers have been there already. Then this hook
            checks from the creation of the session on, which needs them too.
    """

    def __init__(self, concerns: Sequence[WatchedPeer], were_seen: bool) -> None:
        super().__init__(concerns)
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
        return PeerLiveness(self._concerns, were_seen=self._were_seen)

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
