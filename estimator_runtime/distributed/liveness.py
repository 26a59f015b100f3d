"""Checks that the other tasks of a job answer, and that the job itself is there.

TensorFlow sees at once that a task has ended, because the task's machine reports it. A
task that is stopped, or cut off from the network, reports nothing, and a step that
needs it never ends. Every wait here has a deadline, and its error names the task.
"""

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers
from estimator_runtime.distributed.peers import Answer
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.signals import exit

_logger = logging.getLogger(__name__)
CHECK_EVERY_SECS = 3.0
# A silence is logged after this time, and again whenever it is twice as long.
_NAMED_AFTER_SECS = 5.0
_CHIEFS = (TaskType.CHIEF, TaskType.MASTER)
_TRAINERS = (*_CHIEFS, TaskType.WORKER)
# Up to so many trainers of a gang are all asked by each of them.
_MAX_ALL_ASKED = 16
_JOB_CHECK_EVERY_SECS = 5.0
# An absence is logged after this time, and again whenever it is twice as long.
_JOB_NAMED_AFTER_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Concern:
    """Another task that is watched, and what this task does without it.

    Attributes:
        name: Such as "ps 0 at host:2222".
        address: Its "host:port".
        meanwhile: What its absence means for this task.
        missed_if: The answers with which it counts as missing.
        timeout_secs: How long it may be missing; infinity if this task can do without
            it.
        setting: The name of the setting of that timeout; "" if there is no limit.
        is_partner: Whether both take each step together. Then neither can go on when
            the other has ended, even if a new one was started in its place.
    """

    name: str
    address: str
    meanwhile: str
    missed_if: frozenset[Answer] = frozenset([Answer.NONE])
    timeout_secs: float = math.inf
    setting: str = ""
    is_partner: bool = False


def concerns(
    cluster: Mapping[str, Sequence[str]],
    task_type: str | None,
    task_index: int,
    peer_timeout_secs: float,
    session_timeout_secs: float | None,
) -> list[Concern]:
    """Return the `Concern`s of a task that trains.

    Args:
        cluster: Job name to addresses.
        task_type: The type of this task.
        task_index: Its index among the tasks of that type.
        peer_timeout_secs: How long a task that each step needs may be silent.
        session_timeout_secs: How long the chief may be missing, for any reason; None
            for no limit.
    """
    own = f"{task_type} {task_index}"
    trainers = peers.tasks(cluster, _TRAINERS)
    others = {n: a for n, a in trainers.items() if n != own}
    servers = peers.tasks(cluster, (TaskType.PS,))
    found = [
        Concern(
            name=f"{name} at {address}",
            address=address,
            timeout_secs=peer_timeout_secs,
            setting="ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS",
            meanwhile="no step can end without it",
            is_partner=not servers,
        )
        # Without a ps all trainers take each step together.
        for name, address in (servers or _neighbors(own, trainers)).items()
    ]
    for name, address in others.items() if servers else ():
        where = f"{name} at {address}"
        if name.partition(" ")[0] in _CHIEFS:
            limit: dict[str, Any] = {}
            if session_timeout_secs is not None:
                limit["timeout_secs"] = session_timeout_secs
                limit["setting"] = "session_creation_timeout_secs"
            found.append(
                Concern(
                    name=where,
                    address=address,
                    missed_if=frozenset([Answer.NONE, Answer.REFUSED]),
                    meanwhile="nothing is saved without it",
                    **limit,
                )
            )
        elif task_type in _CHIEFS:
            meanwhile = "the others train on, unless they wait for its gradients"
            found.append(Concern(name=where, address=address, meanwhile=meanwhile))
    return found


def _neighbors(own: str, trainers: Mapping[str, str]) -> dict[str, str]:
    """Return which trainers of a gang one of them asks, name to address.

    In a large gang those are the ones at the distances 1, 2, 4, ... from it in a ring.
    So each trainer is asked by a few, and an end reaches all of them by a few others.
    """
    names = list(trainers)
    if len(names) <= _MAX_ALL_ASKED or own not in names:
        return {name: trainers[name] for name in names if name != own}
    at = names.index(own)
    distances = (1 << bit for bit in range((len(names) - 1).bit_length()))
    asked = (names[(at + distance) % len(names)] for distance in distances)
    return {name: trainers[name] for name in asked}


class PeerLiveness:
    """The time for which each task has been missing, as this process has counted it.

    Args:
        concerns: The tasks to watch.
        ask: Returns the `Answer` of an address.
        clock: Returns the time in seconds.
        were_seen: Whether all of the tasks have been there already. One that refuses
            connections has ended then, rather than not started yet.
    """

    def __init__(
        self,
        concerns: Sequence[Concern],
        ask: Callable[[str], Answer] = peers.ask,
        clock: Callable[[], float] = time.monotonic,
        were_seen: bool = False,
    ) -> None:
        self._ask, self._clock = ask, clock
        self._missing = dict.fromkeys(concerns, 0.0)
        self._named_at = dict.fromkeys(concerns, 0.0)
        self._seen = set(concerns if were_seen else ())
        self._ended_in: dict[Concern, int] = {}  # the step in which partners had ended
        self._checked_at = clock()

    @property
    def misses_any(self) -> bool:
        """Whether any task was missing at the last look."""
        return any(self._missing.values())

    def check(self, step: int | None = None) -> str | None:
        """Query all tasks, and log which have stopped answering or answer again.

        Args:
            step: The number of the step that is being taken, or None.

        Returns:
            The reason why this task cannot go on; None if it can.
        """
        now = self._clock()
        # While this process itself was stopped, it asked no other task.
        elapsed = min(now - self._checked_at, CHECK_EVERY_SECS + peers.ANSWER_SECS)
        self._checked_at = now
        answers = peers.ask_all([each.address for each in self._missing], self._ask)
        for concern, answer in zip(self._missing, answers, strict=True):
            problem = self._take(concern, answer, elapsed)
            if concern.is_partner and not problem:
                problem = self._take_partner(concern, answer, step)
            if problem:
                return problem
        return None

    def _take(self, concern: Concern, answer: Answer, elapsed: float) -> str | None:
        """Count the time for which a task is missing; return why to give up, if so."""
        if answer not in concern.missed_if:
            if self._named_at[concern]:
                _warn("%s answers again", concern.name)
            self._missing[concern] = self._named_at[concern] = 0.0
            return None
        self._missing[concern] += elapsed
        missing = self._missing[concern]
        has = "has not answered" if answer is Answer.NONE else "has not been there"
        if missing >= concern.timeout_secs:
            return (
                f"{concern.name} {has} for {missing:.0f} s ({concern.setting} is "
                f"{concern.timeout_secs:g}), and {concern.meanwhile}; giving up"
            )
        if missing >= max(_NAMED_AFTER_SECS, 2 * self._named_at[concern]):
            self._named_at[concern] = missing
            _warn(
                "%s %s for %.0f s%s; %s%s",
                concern.name,
                has,
                missing,
                " (is it stopped, or cut off?)" if answer is Answer.NONE else "",
                concern.meanwhile,
                f", and this task gives up after {concern.timeout_secs:g} s"
                if concern.setting
                else "",
            )
        return None

    def _take_partner(
        self, concern: Concern, answer: Answer, step: int | None
    ) -> str | None:
        """Return why to give up a step that still runs a look after a partner's end."""
        if step is not None and self._ended_in.get(concern) == step:
            return (
                f"{concern.name} has ended, and {concern.meanwhile}; ending as well, "
                "to be started again together"
            )
        self._ended_in.pop(concern, None)
        if answer is Answer.GIVEN:
            self._seen.add(concern)
        elif answer is Answer.REFUSED and concern in self._seen and step is not None:
            self._ended_in[concern] = step
        return None


def _warn(text: str, *values: object) -> None:
    """Log a warning; a blocked log cannot keep a task from giving up."""
    exit.call_and_flush(lambda: _logger.warning(text, *values))


class JobLiveness:
    """The time since the last sign of the trainers, for a ps or an evaluator.

    Args:
        who: The task that waits for them, such as "this ps".
        cluster: Job name to addresses.
        timeout_secs: How long there may be no sign; None for no limit.
        work: Returns a value that changes while they train, such as the sizes of their
            files: a sign of trainers that cannot be reached from here. It is called
            once at the start, and then whenever the time is over.
        listening: Returns whether an address accepts connections.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        who: str,
        cluster: Mapping[str, Sequence[str]],
        timeout_secs: float | None,
        work: Callable[[], object] = lambda: None,
        listening: Callable[[str], bool] = peers.is_listening,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._who, self._work = who, work
        self._listening, self._clock = listening, clock
        trainers = peers.tasks(cluster, _TRAINERS)
        self._names = ", ".join(trainers) or "the trainers"
        # A task that is the only one of its cluster listens on no port.
        is_one = sum(map(len, cluster.values())) == 1
        self._addresses = [] if is_one else list(trainers.values())
        self._timeout_secs = math.inf if timeout_secs is None else timeout_secs
        self._check_every_secs = min(_JOB_CHECK_EVERY_SECS, self._timeout_secs / 2)
        self._seen_at = self._absent_since = self._checked_at = clock()
        self._named_after = _JOB_NAMED_AFTER_SECS
        self._seen_work = work()

    def has_trainer(self) -> bool:
        """Return whether a trainer is there, now."""
        self._checked_at = self._clock()
        # The first one is usually the chief, and one is enough.
        first, others = self._addresses[:1], self._addresses[1:]
        is_there = any(map(self._listening, first)) or any(
            peers.ask_all(others, self._listening)
        )
        if is_there:
            self._seen_at = self._absent_since = self._clock()
            self._named_after = _JOB_NAMED_AFTER_SECS
        return is_there

    def check(self) -> None:
        """Check for trainers, if the last check was some seconds ago.

        Raises:
            PeerTimeoutError: If there has been no sign of the training for too long.
        """
        now = self._clock()
        if now - self._checked_at < self._check_every_secs or self.has_trainer():
            return
        if now - self._seen_at >= self._timeout_secs:
            before, self._seen_work = self._seen_work, self._work()
            if self._seen_work == before:
                raise PeerTimeoutError(
                    f"there has been no sign of {self._names} for "
                    f"{self._timeout_secs:g} s (session_creation_timeout_secs), and "
                    f"none of the training's end; {self._who} gives up"
                )
            self._seen_at = now
        absent_secs = now - self._absent_since
        if self._addresses and absent_secs >= self._named_after:
            self._named_after = 2 * absent_secs
            left = self._timeout_secs - (now - self._seen_at)
            then = f" and gives up in {left:.0f} s" if left < math.inf else ""
            _logger.warning(
                "none of %s has been there for %.0f s; %s waits for them%s",
                self._names,
                absent_secs,
                self._who,
                then,
            )
