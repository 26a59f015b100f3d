"""The slot of one task in a Ray cluster, and the actor that currently fills it."""

from __future__ import annotations

import functools
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import ActorUnavailableError, GetTimeoutError

from estimator_runtime.config.role import TaskType
from estimator_runtime.launch.backends.ray.cluster import RayCluster
from estimator_runtime.launch.backends.ray.errors import brief
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import Ended, Event, Lost, Run, Task

_logger = logging.getLogger(__name__)
# How long a killed run may take to end. After that its actor counts as unreachable and
# is killed.
_KILL_SECS = 10.0


class Slot:
    """A slot that starts the runs of one task and forwards their events.

    A task that others connect to runs only at its address: once its node is gone, all
    tasks need new addresses. No task connects to an evaluator. It runs wherever Ray
    places its actor, once its last run has ended for certain.

    Args:
        task: The task.
        job: The job that the task belongs to.
        options: Ray's options for an actor in the place that is reserved for the task.
        hear: Receives each event, from any thread.
        takes_lines: Returns whether there is room for more output lines.
        cluster: The cluster that runs the actors.

    Attributes:
        task: The task.
        actor: The handle of the actor that fills the slot, or None.
        node: The address of the node; None until the slot has been placed.
        node_id: The id of that node; None while the slot is on no node.
        port: The port of the task on the node, or None.
    """

    def __init__(
        self,
        task: Task,
        job: Job,
        options: dict[str, Any],
        hear: Callable[[Event], None],
        takes_lines: Callable[[], bool],
        cluster: RayCluster,
    ) -> None:
        self.task, self._hear, self._takes_lines = task, hear, takes_lines
        self._cluster, self._waits = cluster, cluster.waits
        self._create = functools.partial(cluster.create, options, job)
        self.node: str | None = None
        self.node_id: str | None = None
        self.port: int | None = None
        self.actor: Any = None
        self._run: Run | None = None
        self._follower: threading.Thread | None = None
        self._heard_at: dict[str, float] = {}  # the last answer of an actor, by node id
        self._has_address = task.type != TaskType.EVALUATOR
        self._lock = threading.RLock()

    def fill(self) -> Any:
        """Return the handle of the actor, creating an actor if there is none."""
        with self._lock:
            if self.actor is None:
                self.actor = self._create()
                self._follower = self._thread(self._follow, self.actor)
            return self.actor

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run at the address of the task, or where Ray places the actor."""
        if self._has_address and self._has_lost(self.node_id):
            cause = "cannot get its address again: its node is gone"
            self._hear(Ended(run=run, status=-1, cause=cause, is_displaced=True))
            return
        address = None
        with self._lock:
            if self._has_address:
                address = self.node_id, self.port
            now = time.monotonic()
            leases = {
                node: self._waits.lease_secs - (now - heard_at)
                for node, heard_at in self._heard_at.items()
            }
            actor, self._run = self.fill(), run
            starting = actor.start.remote(run, environ, address, leases)
        self._thread(self._await_start, actor, starting)

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run; kill its actor if SIGKILL does not end the run."""
        with self._lock:
            actor = self.actor if self._run == run else None
        if actor is None:
            return
        actor.signal.remote(run, int(number))
        if number == signal.SIGKILL:
            timer = threading.Timer(_KILL_SECS, self._give_up, (actor, run))
            timer.daemon = True
            timer.start()

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

    def _has_lost(self, node: str | None) -> bool:
        """Return whether a node is gone, and False if Ray cannot be asked.

        An exception would prevent the end of a run from being reported.
        """
        try:
            return node is not None and not self._cluster.is_alive(node)
        except Exception:
            _logger.debug("Ray does not say which nodes there are", exc_info=True)
            return False

    def _thread(self, target: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(
            target=target,
            args=arguments,
            name=f"estimator_runtime {self.task}",
            daemon=True,
        )
        thread.start()
        return thread

    def _follow(self, actor: Any) -> None:
        """Forward the events of an actor until it is gone."""
        answers, here = 0, None
        while True:
            try:
                if here is None:
                    here = self._settle(actor)
                call = actor.poll.remote(answers, self._takes_lines())
                events = self._cluster.get(call, timeout=self._waits.answer_secs)
            except ActorUnavailableError:
                # Until it answers, or Ray gives it up.
                time.sleep(self._waits.retry_secs)
                continue
            except GetTimeoutError as error:
                # While no other node has room, Ray reports nothing about an actor that
                # was to be created on a node that is gone. `node_id` is that node
                # once a run was started. Before, it may be that of an earlier actor.
                expected = self.node_id if self._run is not None else None
                if self._has_address and self._has_lost(here or expected):
                    self._lose(actor, error)
                    return
                continue
            except Exception as error:  # noqa: BLE001 - reported as the end of the run
                self._lose(actor, error)
                return
            answers += 1
            with self._lock:
                self._heard_at[here] = time.monotonic()
            for event in events:
                if isinstance(event, Lost):
                    self._cluster.kill(actor)  # so the next poll fails: the run ends
                    continue
                if isinstance(event, Ended):
                    with self._lock:
                        self._run = None if self._run == event.run else self._run
                self._hear(event)

    def _settle(self, actor: Any) -> str:
        """Return the id of the actor's node, where an evaluator is from now on."""
        answer = self._cluster.get(actor.where.remote(), self._waits.answer_secs)
        node_id, node, *_ = answer
        if not self._has_address:
            self._cluster.check_nodes({node_id})
            self.node_id, self.node = node_id, node
        return node_id

    def _await_start(self, actor: Any, starting: Any) -> None:
        """Report a run whose start has failed as ended."""
        try:
            self._cluster.get(starting)
        except Exception as error:  # noqa: BLE001 - reported as the end of the run
            self._lose(actor, error)

    def _lose(self, actor: Any, error: Exception) -> None:
        """Kill an actor that is lost, and report the end of its run."""
        with self._lock:
            if self.actor is not actor:
                return
            run, self.actor, self._run = self._run, None, None
        try:
            self._cluster.kill(actor)  # it may only be unreachable
        finally:
            if run is not None:
                is_lost = self._has_lost(self.node_id)
                what = "node" if is_lost else "actor"
                end = Ended(
                    run=run,
                    status=-int(signal.SIGKILL),
                    cause=f"lost its {what} ({brief(error)})",
                    is_displaced=is_lost and self._has_address,
                )
                self._hear(end)

    def _give_up(self, actor: Any, run: Run) -> None:
        with self._lock:
            is_there = self.actor is actor and self._run == run
        if is_there:
            self._cluster.kill(actor)
