"""Whether the training that a task belongs to is there; the wait for it has an end."""

import logging
import math
import time

from estimator_runtime import peers
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.role import TaskType

_logger = logging.getLogger(__name__)

_TRAINERS = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
_LOOK_EVERY_SECS = 5.0
# An absence is named in the log after this time, and whenever it is twice as long.
_NAMED_AFTER_SECS = 10.0


class Presence:
    """When there was last a sign of those who train, for a ps or an evaluator.

    Args:
        who: Who waits for them, such as "this ps".
        cluster: Job name to addresses.
        timeout_secs: How long there may be no sign; None for no limit.
        work: Gives what changes while they train, such as their files: a sign of those
            who cannot be reached from here. It is asked when the time is over.
        listening: Tells whether an address accepts connections.
        clock: Gives the time in seconds.
    """

    def __init__(
        self,
        who,
        cluster,
        timeout_secs,
        work=lambda: None,
        listening=peers.is_listening,
        clock=time.monotonic,
    ):
        self._who, self._work = who, work
        self._listening, self._clock = listening, clock
        trainers = peers.tasks(cluster, _TRAINERS)
        self._names = ", ".join(trainers) or "those who train"
        # A task that is a cluster of its own listens to nobody.
        is_one = sum(map(len, cluster.values())) == 1
        self._addresses = [] if is_one else list(trainers.values())
        self._timeout_secs = math.inf if timeout_secs is None else timeout_secs
        self._look_every_secs = min(_LOOK_EVERY_SECS, self._timeout_secs / 2)
        self._seen_at = self._absent_since = self._looked_at = clock()
        self._named_after = _NAMED_AFTER_SECS
        self._seen_work = work()

    def look(self):
        """Tell whether a trainer is there, now."""
        self._looked_at = self._clock()
        # The first is the one that leads, as a rule, and enough.
        first, others = self._addresses[:1], self._addresses[1:]
        is_there = any(map(self._listening, first)) or any(
            peers.ask_all(others, self._listening)
        )
        if is_there:
            self._seen_at = self._absent_since = self._clock()
            self._named_after = _NAMED_AFTER_SECS
        return is_there

    def check(self):
        """Look, if the last time is some seconds ago.

        Raises:
            PeerTimeoutError: If there has been no sign of the training for too long.
        """
        now = self._clock()
        if now - self._looked_at < self._look_every_secs or self.look():
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
