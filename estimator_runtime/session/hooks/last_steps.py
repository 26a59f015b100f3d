"""Makes the last checkpoint of a chief include the last steps of all trainers."""

import functools
import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.config import waits
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers, ps_notes
from estimator_runtime.distributed.peers import Answer
from estimator_runtime.signals import request

_logger = logging.getLogger(__name__)
# A ps that is alive answers in milliseconds.
_PS_SECS = 30.0
# Polled often at first, and then seldom, because each poll opens a session on a ps.
_POLL_SECS, _OFTEN_SECS, _LATER_POLL_SECS = 0.2, 1.0, 2.0
# A trainer that is silent for so long is gone, with its machine or its network.
_GONE_SECS = 15.0
_WAIT_NAMED_AFTER_SECS = 5.0


class _Note(NamedTuple):
    """What a trainer says of its training.

    Attributes:
        number: The number of the training, from 1.
        has_ended: Whether the trainer has ended it.
        process: An id of the process of the trainer.
    """

    number: int
    has_ended: bool
    process: str

    @property
    def next(self) -> int:
        """The number of the training that the trainer is in, or begins next."""
        return self.number + self.has_ended


def last_steps(
    is_chief: bool, checkpoint_dir: Any, config: tf.compat.v1.ConfigProto | None
) -> list[tf.compat.v1.train.SessionRunHook]:
    """Return the hook of a task that trains with parameter servers and workers.

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
    chiefs = peers.tasks(task.cluster, (TaskType.CHIEF, TaskType.MASTER)) or workers
    chief = next(iter(chiefs))
    workers.pop(own, None)
    awaited = workers if is_chief and checkpoint_dir else {}
    return [LastStepsHook(own, chief, awaited, task.cluster, config)]


def _note_of(trainer: str) -> str:
    return f"estimator_runtime_training_of_{trainer.replace(' ', '_')}"


def _this_process() -> str:
    """Return an id that tells this process from that of the task before a restart."""
    # After the name, which may have any character; see proc(5).
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return f"{os.getpid()} {fields[19]}"


def _parsed(text: str) -> _Note:
    number, has_ended, process = json.loads(text)
    return _Note(number, has_ended, process)


class LastStepsHook(tf.compat.v1.train.SessionRunHook):
    """Leaves a note when this task has trained; a chief waits for those of the others.

    TensorFlow's chief saves for the last time when its own data ends. What the others
    train after that is in no checkpoint. So each trainer leaves a note on the first ps
    when its training ends, and the chief waits for the notes before its last save. It
    does not wait for a worker that is not there, or has been silent for a while, nor
    once it is told to stop. A ps that does not answer ends the wait.

    A program may train several times, while the ps lives on. So a note has the number
    of the training. Only a trainer itself changes its note. A trainer that begins
    another training takes the next number; one that was restarted takes part in the
    same training again. A worker that is behind takes the number of the chief.

    The `end` of this hook has to run before that of the hooks that save.

    Args:
        own: The name of this task, such as "worker 0".
        chief: The name of the chief.
        awaited: The trainers to wait for, name to address; empty unless in a chief.
        cluster: Job name to addresses, with at least one ps.
        config: The ConfigProto of the training's session, or None.
        process: An id of this process; by default its pid and when it started.
        clock: Returns the time in seconds.
        sleep: Waits for some seconds.

    Raises:
        ConfigError: If the limit of the wait is not a number of seconds.
    """

    def __init__(
        self,
        own: str,
        chief: str,
        awaited: Mapping[str, str],
        cluster: Mapping[str, Sequence[str]],
        config: tf.compat.v1.ConfigProto | None,
        process: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._own, self._chief, self._awaited = own, chief, awaited
        self._process = process or _this_process()
        self._on_ps = functools.partial(ps_notes.at_first_ps, cluster, config, _PS_SECS)
        self._limit_secs = waits.last_steps_secs()
        self._clock, self._sleep = clock, sleep
        self._number = 0  # of this training; 0 while it is unknown
        self._heard: dict[str, float] = {}  # trainer to when it answered last

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Note that this task trains."""
        try:
            self._leave_note(has_ended=False)
        except tf.errors.OpError as error:
            _logger.warning("the first ps takes no notes: %s", error)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Leave the note of this task, and wait for those of the others."""
        if request.is_requested():  # every ps may be about to end
            return
        reporting.expect_no_steps()
        try:
            if not self._number:  # the ps took no note at the start
                self._leave_note(has_ended=False)
            self._wait()
            # After the wait: a chief that is killed in it has not trained yet.
            self._leave_note(has_ended=True)
        except tf.errors.OpError as error:
            _logger.warning(
                "the first ps does not say which tasks still train; the last "
                "checkpoint may not have all their steps: %s",
                error,
            )

    def _leave_note(self, has_ended: bool) -> None:
        with self._on_ps() as notes:
            if not self._number:
                found = notes.read(*{_note_of(self._own), _note_of(self._chief)})
                known = {name: _parsed(text) for name, text in found.items()}
                self._number = self._number_after(
                    known.get(_note_of(self._own)), known.get(_note_of(self._chief))
                )
            note = _Note(self._number, has_ended, self._process)
            notes.write(_note_of(self._own), json.dumps(note))

    def _number_after(self, own: _Note | None, chief: _Note | None) -> int:
        """Return the number of a training that begins now, by the notes that exist."""
        if own is None:
            return chief.next if chief else 1
        if own.process != self._process:  # this task was restarted
            trains_in = chief.number if chief and not chief.has_ended else 0
            return max(own.number, trains_in)
        return max(own.next, chief.next if chief else 0)

    def _wait(self) -> None:
        start, is_named = self._clock(), False
        self._heard = dict.fromkeys(self._awaited, start)
        while (left := self._training()) and not request.is_requested():
            waited, names = self._clock() - start, ", ".join(left)
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
            self._sleep(_POLL_SECS if waited < _OFTEN_SECS else _LATER_POLL_SECS)

    def _training(self) -> list[str]:
        """Return the awaited trainers that are there and have not ended theirs."""
        there = self._there()
        if not there:
            return []
        with self._on_ps() as notes:
            found = notes.read(*map(_note_of, there))
        ended = {
            name
            for name in there
            if (text := found.get(_note_of(name))) and _parsed(text).next > self._number
        }
        return [name for name in there if name not in ended]

    def _there(self) -> list[str]:
        """Return the awaited trainers that run, without those that are gone."""
        addresses = [self._awaited[name] for name in self._heard]
        answers = peers.ask_all(addresses, peers.ask)
        now, there = self._clock(), []
        for name, answer in zip(list(self._heard), answers, strict=True):
            if answer is Answer.GIVEN:
                self._heard[name] = now
            silent_secs = now - self._heard[name]
            if silent_secs >= _GONE_SECS and answer is not Answer.REFUSED:
                del self._heard[name]
                _logger.warning(
                    "no answer from %s for %.0f s: the last checkpoint may not have "
                    "all of its steps",
                    name,
                    silent_secs,
                )
            elif answer is not Answer.REFUSED:
                there.append(name)
        return there
