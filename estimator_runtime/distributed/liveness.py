"""Names the tasks that a training waits for and that do not answer; and gives them up.

TensorFlow sees at once that a task has ended, because its machine says so. One that is
stopped, or whose network is cut, says nothing, and a step that needs it never ends.
"""

import dataclasses
import logging
import math
import time

from estimator_runtime import last_words, peers
from estimator_runtime.peers import Answer
from estimator_runtime.role import TaskType

_logger = logging.getLogger(__name__)

LOOK_EVERY_SECS = 3.0
# A silence is named in the log after this time, and whenever it is twice as long.
_NAMED_AFTER_SECS = 5.0
_LEADERS = (TaskType.CHIEF, TaskType.MASTER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Concern:
    """Another task, and what this one does without it.

    Attributes:
        name: Such as "ps 0 at host:2222".
        address: Its "host:port".
        missed_if: The answers with which it counts as missing.
        timeout_secs: How long it may be missing.
        setting: What sets that; "" where this task can do without it for ever.
        meanwhile: What that means for this task.
        is_partner: Whether both take each step together: then neither can go on when
            the other has ended, not even with one that was started in its place.
    """

    name: str
    address: str
    missed_if: frozenset[Answer]
    timeout_secs: float
    setting: str
    meanwhile: str
    is_partner: bool = False


def concerns(cluster, task_type, task_index, peer_timeout_secs, session_timeout_secs):
    """Give the `Concern`s of a task that trains.

    Args:
        cluster: Job name to addresses.
        task_type: That of this task.
        task_index: Its index among the tasks of that type.
        peer_timeout_secs: How long a task that each step needs may be silent.
        session_timeout_secs: How long the chief may be away, whatever the reason; None
            for no limit.
    """
    own = f"{task_type} {task_index}"
    trainers = peers.tasks(cluster, (*_LEADERS, TaskType.WORKER))
    others = {name: address for name, address in trainers.items() if name != own}
    servers = peers.tasks(cluster, (TaskType.PS,))
    silent = frozenset([Answer.NONE])
    found = [
        Concern(
            name=f"{name} at {address}",
            address=address,
            missed_if=silent,
            timeout_secs=peer_timeout_secs,
            setting="ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS",
            meanwhile="no step can end without it",
            is_partner=not servers,
        )
        # Without a ps all trainers take each step together.
        for name, address in (servers or others).items()
    ]
    if not servers:
        return found
    for name, address in others.items():
        if name.partition(" ")[0] in _LEADERS:
            own_limit = session_timeout_secs is not None
            found.append(
                Concern(
                    name=f"{name} at {address}",
                    address=address,
                    missed_if=frozenset([Answer.NONE, Answer.REFUSED]),
                    timeout_secs=session_timeout_secs if own_limit else math.inf,
                    setting="session_creation_timeout_secs" if own_limit else "",
                    meanwhile="nothing is saved without it",
                )
            )
        elif task_type in _LEADERS:
            found.append(
                Concern(
                    name=f"{name} at {address}",
                    address=address,
                    missed_if=silent,
                    timeout_secs=math.inf,
                    setting="",
                    meanwhile="the others train on, unless they wait for its gradients",
                )
            )
    return found


class Silence:
    """For how long each task has been missing, by this process's own count.

    Args:
        concerns: The tasks to ask.
        ask: Gives the `Answer` of an address.
        clock: Gives the time in seconds.
    """

    def __init__(self, concerns, ask=peers.ask, clock=time.monotonic):
        self._ask, self._clock = ask, clock
        self._missing = dict.fromkeys(concerns, 0.0)
        self._named_at = dict.fromkeys(concerns, 0.0)
        self._seen: set[Concern] = set()
        self._ended_in: dict[Concern, int] = {}  # the step in which partners had ended
        self._looked_at = clock()

    @property
    def misses_any(self):
        """Whether some were missing at the last look."""
        return any(self._missing.values())

    def look(self, step=None):
        """Ask all, and log who has not answered for a while, and who does so again.

        Args:
            step: The number of the step that is being taken, or None.

        Returns:
            Why this task cannot go on; None if it can.
        """
        now = self._clock()
        # While this process was stopped itself, nobody was asked.
        elapsed = min(now - self._looked_at, LOOK_EVERY_SECS + peers.ANSWER_SECS)
        self._looked_at = now
        answers = peers.ask_all([each.address for each in self._missing], self._ask)
        for concern, answer in zip(self._missing, answers, strict=True):
            problem = self._take(concern, answer, elapsed)
            if concern.is_partner and not problem:
                problem = self._take_partner(concern, answer, step)
            if problem:
                return problem
        return None

    def _take(self, concern, answer, elapsed):
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

    def _take_partner(self, concern, answer, step):
        """Give up a step that has gone on for a whole look after a partner's end."""
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


def _warn(text, *values):
    """Log a warning; a log that nobody reads must not keep a task from giving up."""
    last_words.say(lambda: _logger.warning(text, *values))
