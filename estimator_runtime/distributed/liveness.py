"""Watches the tasks that this one needs: names those that are missing, then gives up.

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
from estimator_runtime.config.waits import PEER_TIMEOUT_VARIABLE
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
_SESSION_TIMEOUT = "session_creation_timeout_secs"
_SILENT = frozenset([Answer.SILENT, Answer.UNREACHABLE])
_ABSENT = frozenset([Answer.REFUSED, Answer.UNREACHABLE])


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchedPeer:
    """A task that is watched, or several of which one is enough.

    Attributes:
        name: Such as "ps 0 at host:2222".
        addresses: The "host:port" of each; none if they cannot be asked.
        meanwhile: What its absence means for this task.
        missed_if: The answers with which it counts as missing.
        timeout_secs: How long it may be missing; infinity if this task can do without
            it.
        setting: The name of the setting of that timeout.
        is_partner: Whether both take each step together. Then neither can go on when
            the other has ended, even if a new one was started in its place.
    """

    name: str
    addresses: tuple[str, ...]
    meanwhile: str
    missed_if: frozenset[Answer] = _SILENT
    timeout_secs: float = math.inf
    setting: str = ""
    is_partner: bool = False


def watched_peers(
    cluster: Mapping[str, Sequence[str]],
    task_type: str | None,
    task_index: int,
    peer_timeout_secs: float,
    session_timeout_secs: float | None,
) -> list[WatchedPeer]:
    """Return the tasks that a task which trains watches.

    A trainer watches every ps and the chief; the chief watches every ps and the other
    trainers. Without a ps all trainers take each step together, and watch each other.

    Args:
        cluster: Job name to addresses.
        task_type: The type of this task.
        task_index: Its index among the tasks of that type.
        peer_timeout_secs: How long a task that each step needs may be silent.
        session_timeout_secs: How long the chief may be missing, for any reason; None
            for no limit.
    """
    servers = peers.tasks(cluster, (TaskType.PS,))
    trainers = peers.tasks(cluster, _TRAINERS)
    trainers.pop(f"{task_type} {task_index}", None)
    found = _peers(
        servers or trainers,
        meanwhile="no step can end without it",
        timeout_secs=peer_timeout_secs,
        setting=PEER_TIMEOUT_VARIABLE,
        is_partner=not servers,
    )
    if servers and task_type in _CHIEFS:
        why = "the others train on, unless they wait for its gradients"
        found += _peers(trainers, meanwhile=why)
    elif servers:
        found += _peers(
            peers.tasks(cluster, _CHIEFS),
            meanwhile="nothing is saved without it",
            missed_if=_SILENT | _ABSENT,
            timeout_secs=_limit(session_timeout_secs),
            setting=_SESSION_TIMEOUT,
        )
    return found


def _peers(tasks: Mapping[str, str], **options: Any) -> list[WatchedPeer]:
    return [
        WatchedPeer(name=f"{name} at {address}", addresses=(address,), **options)
        for name, address in tasks.items()
    ]


def any_trainer(
    cluster: Mapping[str, Sequence[str]], timeout_secs: Any, meanwhile: str
) -> WatchedPeer:
    """Return the trainers of a cluster, of which a ps or an evaluator needs one.

    Args:
        cluster: Job name to addresses.
        timeout_secs: How long there may be none; not a number for no limit.
        meanwhile: What this task does without them.
    """
    trainers = peers.tasks(cluster, _TRAINERS)
    # A task that is the only one of its cluster listens on no port.
    is_one = sum(map(len, cluster.values())) == 1
    return WatchedPeer(
        name=", ".join(trainers) or "the trainers",
        addresses=() if is_one else tuple(trainers.values()),
        meanwhile=meanwhile,
        missed_if=_ABSENT,
        timeout_secs=_limit(timeout_secs),
        setting=_SESSION_TIMEOUT,
    )


def _limit(timeout_secs: Any) -> float:
    # The configs of a program's own tests may have any value there.
    return timeout_secs if isinstance(timeout_secs, int | float) else math.inf


class PeerLiveness:
    """The time for which each task has been missing, as this process has counted it.

    Args:
        watched: The tasks to watch.
        ask: Returns the `Answer` of an address.
        clock: Returns the time in seconds.
        were_seen: Whether all of the tasks have been there already. One that refuses
            connections has ended then, rather than not started yet.
    """

    def __init__(
        self,
        watched: Sequence[WatchedPeer],
        ask: Callable[[str], Answer] = peers.ask,
        clock: Callable[[], float] = time.monotonic,
        were_seen: bool = False,
    ) -> None:
        self._ask, self._clock, self._watched = ask, clock, watched
        self._seen = set(watched if were_seen else ())
        self._ended_in: dict[WatchedPeer, int] = {}  # the step of a partner's end
        shortest = min((each.timeout_secs for each in watched), default=math.inf)
        self._check_every_secs = min(CHECK_EVERY_SECS, shortest / 2)
        self.reset()

    @property
    def misses_any(self) -> bool:
        """Whether any task was missing at the last look."""
        return any(self._missing.values())

    def reset(self) -> None:
        """Count anew: there has been another sign of all tasks."""
        self._missing = dict.fromkeys(self._watched, 0.0)
        self._named_at = dict.fromkeys(self._watched, 0.0)
        self._checked_at = self._clock()

    def has_any(self) -> bool:
        """Return whether any of the tasks is there, now."""
        return any(
            answer not in each.missed_if
            for each in self._watched
            for answer in peers.ask_all(each.addresses, self._ask)
        )

    def check_if_due(self) -> None:
        """Query all tasks, if the last time was some seconds ago.

        Raises:
            PeerTimeoutError: If one has been missing for too long.
        """
        if self._clock() - self._checked_at >= self._check_every_secs:
            problem = self.check()
            if problem is not None:
                raise PeerTimeoutError(problem)

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
        addresses = [a for each in self._watched for a in each.addresses]
        answers = dict(zip(addresses, peers.ask_all(addresses, self._ask), strict=True))
        for peer in self._watched:
            given = [answers[address] for address in peer.addresses]
            there = [each for each in given if each not in peer.missed_if]
            answer = (there or given or [Answer.REFUSED])[0]
            problem = self._take(peer, answer, elapsed)
            if peer.is_partner and not problem:
                problem = self._take_partner(peer, answer, step)
            if problem:
                return problem
        return None

    def _take(self, peer: WatchedPeer, answer: Answer, elapsed: float) -> str | None:
        """Count the time for which a task is missing; return why to give up, if so."""
        if answer not in peer.missed_if:
            if self._named_at[peer]:
                _warn("%s answers again", peer.name)
            self._missing[peer] = self._named_at[peer] = 0.0
            return None
        self._missing[peer] += elapsed
        missing = self._missing[peer]
        if missing >= peer.timeout_secs:
            return (
                f"no answer from {peer.name} for {missing:.0f} s ({peer.setting} is "
                f"{peer.timeout_secs:g}), and {peer.meanwhile}; giving up"
            )
        is_due = missing >= max(_NAMED_AFTER_SECS, 2 * self._named_at[peer])
        if is_due and peer.addresses:
            self._named_at[peer] = missing
            _warn(
                "no answer from %s for %.0f s%s; %s%s",
                peer.name,
                missing,
                " (is it stopped, or cut off?)" if answer in _SILENT else "",
                peer.meanwhile,
                f", and this task gives up after {peer.timeout_secs:g} s"
                if peer.timeout_secs < math.inf
                else "",
            )
        return None

    def _take_partner(
        self, peer: WatchedPeer, answer: Answer, step: int | None
    ) -> str | None:
        """Return why to give up a step that still runs a look after a partner's end."""
        if step is not None and self._ended_in.get(peer) == step:
            return (
                f"{peer.name} has ended, and {peer.meanwhile}; ending as well, "
                "to be started again together"
            )
        self._ended_in.pop(peer, None)
        if answer is Answer.GIVEN:
            self._seen.add(peer)
        elif answer is Answer.REFUSED and peer in self._seen and step is not None:
            self._ended_in[peer] = step
        return None


def _warn(text: str, *values: object) -> None:
    """Log a warning; a blocked log cannot keep a task from giving up."""
    exit.call_and_flush(lambda: _logger.warning(text, *values))
