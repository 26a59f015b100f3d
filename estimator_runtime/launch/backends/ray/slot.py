"""The slot of one task in a Ray cluster, and the actor that currently fills it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayError,
)

from estimator_runtime import threads
from estimator_runtime.config.role import TaskType
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.backends.ray.actor import LEASE_SECS
from estimator_runtime.launch.backends.ray.cluster import RayCluster
from estimator_runtime.launch.backends.ray.errors import brief
from estimator_runtime.launch.task import (
    Ended,
    Event,
    Events,
    Lost,
    Output,
    Reported,
    Run,
    Task,
)

_logger = logging.getLogger(__name__)
_SIGN_SECS = 5.0
# The interval between two checks whether there is room for lines again.
_WAIT_SECS = 0.05


@dataclasses.dataclass(frozen=True)
class RayWaits:
    """How long the tasks of a job wait for a cluster, in seconds.

    Attributes:
        close_secs: For tasks that can be reached to end.
        gone_secs: Then, for Ray to report that all actors are gone.
        retry_secs: Before an actor is asked again.
        actors_secs: For an actor to start, which is a new Python process on its node,
            and for Ray to notice that a machine is gone, which takes up to 65 s.
        silent_secs: Before a delay is reported.
        lease_secs: How long a task lives on without an answer of this machine, and a
            margin for the time that its kill takes, and for clocks that run at
            different speeds.
        answer_secs: For an actor to answer a call.
    """

    close_secs: float = 20.0
    gone_secs: float = 10.0
    retry_secs: float = 1.0
    actors_secs: float = 120.0
    silent_secs: float = 5.0
    lease_secs: float = LEASE_SECS + 5.0
    answer_secs: float = 15.0


class Slot:
    """Starts the runs of one task and forwards their events.

    A task that others connect to runs only at its address: once its node is gone, all
    tasks need new addresses. No task connects to an evaluator, which runs wherever Ray
    places its actor.

    A run has ended when its node says so, or when Ray says that its actor has died on a
    live node. On a node that is lost or silent, a run ends by itself with its lease. So
    its end is reported no earlier than that, and no second run is started beside it.

    Args:
        task: The task.
        create: Returns a new actor in the room that is reserved for the task.
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
    """

    def __init__(
        self,
        task: Task,
        create: Callable[[], Any],
        hear: Callable[[Event], None],
        events: Events,
        cluster: RayCluster,
        waits: RayWaits,
        is_closing: threading.Event,
    ) -> None:
        self.task, self._create, self._events = task, create, events
        self._cluster, self._waits, self._is_closing = cluster, waits, is_closing
        self.node_id: str | None = None
        self.port: int | None = None
        self.actor: Any = None
        self._run: Run | None = None
        self._is_requested = False  # whether the actor has been told to start the run
        self._follower: threading.Thread | None = None
        self._heard_at: float | None = None  # when the present actor answered last
        self._has_address = task.type != TaskType.EVALUATOR
        self._hear, self._lock = hear, threading.RLock()

    def fill(self) -> Any:
        """Return the handle of the actor, creating an actor if there is none."""
        with self._lock:
            if self.actor is None:
                self.actor, self._heard_at = self._create(), None
                self._follower = threads.start(str(self.task), self._follow, self.actor)
            return self.actor

    def place(self, takes_port: bool, until: float, say: Callable[[str], None]) -> str:
        """Take a new address, where Ray has placed the actor.

        Args:
            takes_port: Whether the task needs a port.
            until: When to give up, in the time of `time.monotonic`.
            say: Reports a delay.

        Returns:
            The address of the node.

        Raises:
            LaunchError: If there is no actor in time, or its node is not suitable.
        """
        self.node_id = None
        while True:
            try:
                where = self._where(self.fill(), takes_port, until, say)
                self.node_id, node, self.port = where
                return node
            except GetTimeoutError as error:
                raise LaunchError(
                    f"no actor was started for {self.task} in time; the logs of Ray on "
                    "its node may say why"
                ) from error
            except RayError as error:
                is_lost = (
                    isinstance(error, RayActorError) and not error.actor_init_failed
                )
                if not is_lost or time.monotonic() > until or self._is_closing.is_set():
                    reason = f"{self.task} cannot be placed: {brief(error)}"
                    raise LaunchError(reason) from error
            self._is_closing.wait(self._waits.retry_secs)

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run at the address of the task, or where Ray places the actor."""
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

    def ask(self, method: str, argument: str, timeout_secs: float) -> Any:
        """Return what a method of the actor answers, in time, or raise its error."""
        answer = getattr(self.fill(), method).remote(argument)
        return self._cluster.get(answer, timeout_secs)

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

    def _where(
        self,
        actor: Any,
        takes_port: bool,
        until: float,
        say: Callable[[str], None] = lambda _: None,
    ) -> tuple[str, str, int | None]:
        """Return what an actor answers to `where`, which may take until it exists."""
        answer, wait_secs = actor.where.remote(takes_port), self._waits.silent_secs
        while True:
            try:
                where = self._cluster.get(answer, wait_secs)
                self._note_answer(actor)
                return where
            except GetTimeoutError:
                # Ray says nothing about an actor for which no node has room.
                is_over = time.monotonic() >= until or self._has_lost_node()
                if is_over or self._is_closing.is_set():
                    raise
                if wait_secs == self._waits.silent_secs:
                    say(f"waiting for the actor of {self.task}")
                wait_secs = self._waits.answer_secs

    def _start(self, actor: Any, run: Run, environ: dict[str, str]) -> None:
        """Start a run, or report its end."""
        try:
            # With this answer, the lease of the actor is known.
            until = time.monotonic() + self._waits.actors_secs
            if not self._has_address:
                self.node_id = self.port = None  # any node will do
            node_id, *_ = self._where(actor, False, until)
            if node_id != self.node_id and self._has_address:
                raise OSError("its node is gone")
            self.node_id = node_id
            with self._lock:
                if self._run != run:  # a signal has come first
                    return
                starting = actor.start.remote(run, environ, self.port)
                self._is_requested = True
            self._cluster.get(starting, self._waits.answer_secs)
        except OSError as error:
            if isinstance(error, GetTimeoutError):
                self._lose(actor, error)
                return
            if self._run != run:  # a signal has ended it before
                return
            cause = f"cannot get its address again: {error.strerror or error}"
            self._hear(Ended(run=run, status=-1, cause=cause, is_displaced=True))
        except Exception as error:  # noqa: BLE001 - reported as the end of the run
            self._lose(actor, error)

    def _follow(self, actor: Any) -> None:
        """Forward the events of an actor until it is gone."""
        answers = 0
        while self.actor is actor:
            while not self._events.takes_lines() and not self._is_closing.is_set():
                self._is_closing.wait(_WAIT_SECS)
            try:
                call = actor.poll.remote(answers)
                events = self._cluster.get(call, self._waits.answer_secs)
            except (ActorUnavailableError, GetTimeoutError) as error:
                heard_at = self._heard_at
                lease_secs = self._waits.lease_secs
                if heard_at is not None and time.monotonic() >= heard_at + lease_secs:
                    self._lose(actor, error)
                self._is_closing.wait(self._waits.retry_secs)
                continue
            except Exception as error:  # noqa: BLE001 - reported as the end of the run
                self._lose(actor, error)
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

    def _lose(self, actor: Any, error: Exception) -> None:
        """Kill an actor that is lost, and report the end of its run once it is sure."""
        with self._lock:
            if self.actor is not actor:
                return
            run, self.actor, self._run = self._run, None, None
            heard_at = self._heard_at
        with contextlib.suppress(RayError):
            self._cluster.kill(actor)  # it may only be unreachable
        if run is None:
            return
        is_lost = self._has_lost_node()
        if is_lost and heard_at is not None:
            self._wait_for_lease(run, heard_at + self._waits.lease_secs)
        end = Ended(
            run=run,
            status=-int(signal.SIGKILL),
            cause=f"lost its {'node' if is_lost else 'actor'} ({brief(error)})",
            is_displaced=is_lost and self._has_address,
        )
        self._hear(end)

    def _wait_for_lease(self, run: Run, end: float) -> None:
        """Wait until a run on a lost node has ended by itself."""
        left_secs = max(0.0, end - time.monotonic())
        line = f"waiting {left_secs:.0f} s for the last run, on a lost node, to end"
        self._hear(Output(run=run, line=line, is_error=True))
        while (left := end - time.monotonic()) > 0 and not self._is_closing.is_set():
            # Its silence is known, and no reason to kill it.
            self._hear(Reported(run=run, report={}))
            self._is_closing.wait(min(left, _SIGN_SECS))

    def _has_lost_node(self) -> bool:
        """Return whether the node is gone, and False if Ray cannot be asked.

        An exception would prevent the end of a run from being reported.
        """
        try:
            return self.node_id is not None and self._cluster.has_lost(self.node_id)
        except Exception:
            _logger.debug("Ray does not say which nodes there are", exc_info=True)
            return False
