"""The slot of one task in a Ray cluster, and the actor that currently fills it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import math
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

from estimator_runtime import threads
from estimator_runtime.launch.backends.ray.actor import LEASE_SECS
from estimator_runtime.launch.backends.ray.cluster import RayCluster
from estimator_runtime.launch.backends.ray.errors import brief
from estimator_runtime.launch.task import Ended, Event, Events, Lost, Run, Task

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RayWaits:
    """How long the tasks of a job wait for a cluster, in seconds.

    Attributes:
        close_secs: For tasks that can be reached to end.
        gone_secs: Then, for Ray to report that all actors are gone.
        retry_secs: Before an actor is asked again.
        actors_secs: For an actor to start, which is a new Python process on its node,
            and for Ray to notice that a machine is gone, which takes up to 65 s.
        lease_secs: How long a task lives on without an answer of this machine, and a
            margin for the time that its kill takes, and for clocks that run at
            different speeds.
        answer_secs: For an actor to answer a call.
    """

    close_secs: float = 20.0
    gone_secs: float = 10.0
    retry_secs: float = 1.0
    actors_secs: float = 100.0
    lease_secs: float = LEASE_SECS + 5.0
    answer_secs: float = 15.0


class Slot:
    """Starts the runs of one task and forwards their events.

    A task runs only on the node where it was placed. If its actor dies there, the next
    run has a new one. If its node is lost, the task cannot be started again.

    Args:
        task: The task.
        index: Its index among the tasks of the job.
        hear: Receives each event, from any thread.
        events: The queue in which there has to be room for lines.
        cluster: The cluster that runs the actors.
        waits: How long to wait for it.
        is_closing: An event that is set at the end of the job.

    Attributes:
        task: The task.
        actor: The handle of the actor that fills the slot, or None.
        node_id: The id of the node that the task was placed on, or None.
        port: The port of the task there, or None.
        ends_at: When a run on a lost node has ended by its lease, in the time of
            `time.monotonic`.
    """

    def __init__(
        self,
        task: Task,
        index: int,
        hear: Callable[[Event], None],
        events: Events,
        cluster: RayCluster,
        waits: RayWaits,
        is_closing: threading.Event,
    ) -> None:
        self.task, self._index, self._events = task, index, events
        self._cluster, self._waits, self._is_closing = cluster, waits, is_closing
        self.node_id: str | None = None
        self.port: int | None = None
        self.actor: Any = None
        self.ends_at = -math.inf
        self._run: Run | None = None
        self._is_requested = False  # whether the actor has been told to start the run
        self._follower: threading.Thread | None = None
        self._heard_at: float | None = None  # when the present actor answered last
        self._hear, self._lock = hear, threading.RLock()

    def fill(self) -> Any:
        """Return the handle of the actor, creating an actor if there is none."""
        with self._lock:
            if self.actor is None:
                self.actor = self._cluster.create(self._index)
                self._heard_at = None
                self._follower = threads.start(str(self.task), self._follow, self.actor)
            return self.actor

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run at the address of the task."""
        with self._lock:
            actor, self._run, self._is_requested = self.fill(), run, False
        threads.start(str(self.task), self._start, actor, run, environ)

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run that has not ended; one that waits is not started."""
        with self._lock:
            actor = self.actor if self._run == run else None
            if actor is not None and not self._is_requested:
                actor, self._run = None, None
                self._hear(Ended(run=run, status=-int(number)))
        if actor is not None:
            actor.signal.remote(run, int(number))

    def vacate(self) -> None:
        """Kill the actor and everything it has started, without reporting an end."""
        with self._lock:
            actor, self.actor, self._run = self.actor, None, None
        if actor is not None:
            self._cluster.kill(actor)

    def join(self, timeout_secs: float) -> None:
        """Wait until Ray reports that the actor is gone."""
        if self._follower is not None:
            self._follower.join(timeout_secs)

    def _start(self, actor: Any, run: Run, environ: dict[str, str]) -> None:
        """Start a run, or report its end."""
        try:
            # With this answer, the lease of the actor is known.
            where = actor.where.remote(False)
            node_id, *_ = self._cluster.get(where, self._waits.actors_secs)
            self._note_answer(actor)
            if node_id != self.node_id:
                self._lose(actor, "Ray has moved it", lost="node")
                return
            with self._lock:
                if self._run != run:  # a signal has come first
                    return
                starting = actor.start.remote(run, environ, self.port)
                self._is_requested = True
            self._cluster.get(starting, self._waits.answer_secs)
        except Exception as error:  # noqa: BLE001 - reported as the end of the run
            # Ray's error has that of the actor as its cause.
            number = getattr(getattr(error, "cause", error), "errno", None)
            # Another process took the port after the last actor had died.
            lost = "address" if number == errno.EADDRINUSE else None
            self._lose(actor, brief(error), lost)

    def _follow(self, actor: Any) -> None:
        """Forward the events of an actor until it is gone."""
        answers = 0
        while self.actor is actor:
            self._events.wait_for_room(self._is_closing)
            try:
                call = actor.poll.remote(answers)
                events = self._cluster.get(call, self._waits.answer_secs)
            except (ActorUnavailableError, GetTimeoutError) as error:
                heard_at = self._heard_at
                lease_secs = self._waits.lease_secs
                if heard_at is not None and time.monotonic() >= heard_at + lease_secs:
                    self._lose(actor, brief(error))
                self._is_closing.wait(self._waits.retry_secs)
                continue
            except Exception as error:  # noqa: BLE001 - reported as the end of the run
                self._lose(actor, brief(error))
                return
            answers += 1
            self._note_answer(actor)
            for event in events:
                if isinstance(event, Lost):
                    self._cluster.kill(actor)  # so the next poll fails: the run ends
                    continue
                if isinstance(event, Ended):
                    with self._lock:
                        self._run = None if self._run == event.run else self._run
                self._hear(event)

    def _note_answer(self, actor: Any) -> None:
        with self._lock:
            if self.actor is actor:
                self._heard_at = time.monotonic()

    def _lose(self, actor: Any, why: str, lost: str | None = None) -> None:
        """Kill an actor that is lost, and report the end of its run."""
        with self._lock:
            if self.actor is not actor:
                return
            run, self.actor, self._run = self._run, None, None
        with contextlib.suppress(RayError):
            self._cluster.kill(actor)  # it may only be unreachable
        if run is None:
            return
        lost = "node" if self._has_lost_node() else lost or "actor"
        if lost == "node" and self._heard_at is not None:
            self.ends_at = self._heard_at + self._waits.lease_secs
        end = Ended(
            run=run,
            status=-int(signal.SIGKILL),
            cause=f"lost its {lost} ({why})",
            is_machine_lost=lost != "actor",
        )
        self._hear(end)

    def _has_lost_node(self) -> bool:
        """Return whether the node is gone, and False if Ray cannot be asked.

        An exception would prevent the end of a run from being reported.
        """
        try:
            return self.node_id is not None and self._cluster.has_lost(self.node_id)
        except Exception:
            _logger.debug("Ray does not say which nodes there are", exc_info=True)
            return False
