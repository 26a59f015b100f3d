"""The slot of one task in a Ray cluster, and the actor that currently fills it.

No other task connects to an evaluator, so its slot may move to another node. The slots
of all other tasks stay where the tasks have their addresses.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import ActorUnavailableError, RayError

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.ray.cluster import RayCluster, RayWaits
from estimator_runtime.launch.ray.errors import brief
from estimator_runtime.launch.task import Ended, Event, Lost, Refused, Run, Task

_logger = logging.getLogger(__name__)
# How long a killed run may take to end. After that its actor counts as unreachable and
# is killed.
_KILL_SECS = 10.0


class Slot:
    """A slot that starts the runs of one task and forwards their events.

    The next actor of a movable slot may be on another node, which is known only once
    the actor is there, and which may not have been checked. So the actor starts its run
    only after the node has been admitted.

    Args:
        task: The task.
        job: The job that the task belongs to.
        folder: The working directory of the task; None for the copy of a folder that
            Ray has made on the node.
        hear: Receives each event, from any thread.
        takes_lines: Returns whether there is room for more output lines.
        cluster: The cluster that runs the actors.
        waits: How long to wait for it.
        admit: Makes the slot movable. Receives this slot, and the id, the address and
            the working directory of the node on which Ray has placed its actor. Blocks
            until the task may be started there, and returns whether it may. Raises
            `LaunchError` if the node is not suitable.

    Attributes:
        task: The task.
        actor: The handle of the actor that fills the slot, or None.
        node: The address of the node; None until the slot has been placed.
        node_id: The id of that node; None while the slot is on no node.
        is_leaving: Whether the node has given notice that it is about to leave.
        is_movable: Whether the task may run on another node than before.
        port: The port of the task on the node, or None.
    """

    def __init__(
        self,
        task: Task,
        job: Job,
        folder: str | None,
        hear: Callable[[Event], None],
        takes_lines: Callable[[], bool],
        cluster: RayCluster,
        waits: RayWaits,
        admit: Callable[[Slot, str, str, str], bool] | None = None,
    ) -> None:
        self.task, self._job, self._folder, self._hear = task, job, folder, hear
        self._takes_lines, self._admit = takes_lines, admit
        self._cluster, self._waits = cluster, waits
        self.is_movable, self.is_leaving = admit is not None, False
        self.node: str | None = None
        self.node_id: str | None = None
        self.port: int | None = None
        self.actor: Any = None
        self._admitted: Any = None  # the actor whose node has been admitted
        self._run: Run | None = None
        # The run, with its variables, that the actor starts once it is admitted.
        self._planned: tuple[Run, dict[str, str]] | None = None
        self._follower: threading.Thread | None = None
        self._starting: Any = None  # the pending answer to `TaskActor.start`
        self._heard_at: float | None = None
        self._options: dict[str, Any] = {}
        self._lock = threading.RLock()

    def fill(self, options: dict[str, Any] | None = None) -> Any:
        """Return the handle of the actor, creating an actor if there is none.

        Ray's options are for this actor and all later ones; None reuses them.
        """
        self._options = options or self._options
        with self._lock:
            if self.actor is not None:
                return self.actor
            actor = self._cluster.create(self._options, self._job, self._folder)
            self.actor = actor
            self._starting = None
        self._follower = self._thread(self._follow, actor)
        return actor

    def settle(self, node_id: str, node: str) -> None:
        """Record the node that the actor is on, where the task will be started."""
        with self._lock:
            self.node_id, self.node, self.is_leaving = node_id, node, False
            self._heard_at = time.monotonic()

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run at the address of the task, or where Ray places a movable one."""
        if not self.is_movable and self._is_known_lost():
            self.refuse(run, "its node is gone")
            return
        actor = self.fill()
        with self._lock:
            is_there = self.actor is actor
            self._run = run if is_there else None
            if is_there:
                self._planned = (run, environ)
                self._start_planned(actor)
        if not is_there:
            self._end(run, "lost its actor")

    def _start_planned(self, actor: Any) -> None:
        """Start the planned run, if there is one and the actor is admitted."""
        is_admitted = not self.is_movable or self._admitted is actor
        if self._planned is None or not is_admitted:
            return
        (run, environ), self._planned = self._planned, None
        address = (None, None) if self.is_movable else (self.port, self.node_id)
        if self._run == run:  # else it has ended meanwhile
            self._starting = actor.start.remote(run, environ, *address)

    def refuse(self, run: Run, why: str) -> None:
        """Report the end of a run that cannot start without a new address."""
        cause = f"cannot get its address again: {why}"
        self._hear(Ended(run=run, status=-1, cause=cause, is_displaced=True))

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run; any signal ends a run that is only planned.

        If the run has not ended some time after SIGKILL, its actor is killed.
        """
        with self._lock:
            actor = self.actor if self._run == run else None
            is_planned = self._planned is not None and self._planned[0] == run
            if actor is not None and is_planned:
                self.actor = self._run = self._planned = None
        if actor is None:
            return
        if is_planned:
            self._cluster.kill(actor)
            self._hear(Ended(run=run, status=-int(number)))
            return
        actor.signal.remote(run, int(number))
        if number == signal.SIGKILL:
            timer = threading.Timer(_KILL_SECS, self._give_up, (actor, run))
            timer.daemon = True
            timer.start()

    def evict(self) -> bool:
        """Report the end of the current run, if any, which is about to be killed."""
        with self._lock:
            run, self._run = self._run, None
        if run is not None:
            self._end(run, "had to leave its node", is_displaced=True)
        return run is not None

    def give_up_lost_start(self) -> None:
        """End a run that waits for an actor on a node that is gone.

        Ray reports nothing about such an actor until another node has room for it. A
        movable one then reports its new node.
        """
        with self._lock:
            actor, starting = self.actor, self._starting
        if self.is_movable or actor is None or starting is None:
            return
        if not self._cluster.wait([starting], timeout=0)[0] and self._is_known_lost():
            self._lose(actor, RayError("it was to start there"))

    @property
    def has_run(self) -> bool:
        """Whether a run has been started and has not ended."""
        return self._run is not None

    def vacate(self, is_closed: bool = False) -> None:
        """Kill the actor and everything it has started, without reporting an end.

        `is_closed` says that the actor has confirmed that nothing runs any more.
        """
        with self._lock:
            actor, self.actor, self._run = self.actor, None, None
            self._heard_at = None if is_closed else self._heard_at
            self.node_id = None
        if actor is not None:
            self._cluster.kill(actor)

    def join(self, timeout_secs: float) -> None:
        """Wait until Ray reports that the actor is gone."""
        if self._follower is not None:
            self._follower.join(timeout_secs)

    def lives_until(self) -> float | None:
        """Return the time by which everything started here has ended, reachable or not.

        It is a time of `time.monotonic`, or None if nothing was started.
        """
        if self._heard_at is None:
            return None
        return self._heard_at + self._waits.lease_secs + self._waits.lease_margin_secs

    def has_lost_node(self) -> bool:
        """Return whether the node on which the task has its address is gone."""
        return self.node_id is not None and not self._cluster.is_alive(self.node_id)

    def _is_known_lost(self) -> bool:
        """Return whether the node is gone, and False if Ray cannot be asked.

        Use it where an exception would prevent the end of a run from being reported.
        """
        try:
            return self.has_lost_node()
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
                    here, *place = self._cluster.get(actor.where.remote())
                    if self._admit is not None:
                        self._thread(self._move, self._admit, actor, here, *place)
                events = self._cluster.get(
                    actor.poll.remote(answers, self._takes_lines())
                )
            except ActorUnavailableError:
                # Until it answers, or Ray gives it up.
                time.sleep(self._waits.retry_secs)
                continue
            except Exception as error:  # noqa: BLE001 - reported as the end of the run
                self._lose(actor, error)
                return
            answers += 1
            with self._lock:
                # An actor that Ray has moved says nothing about what may still run on
                # the node where it should have been.
                if self.actor is actor and here == self.node_id:
                    self._heard_at = time.monotonic()
            for event in events:
                if isinstance(event, Lost):
                    self._cluster.kill(actor)  # so the next poll fails: the run ends
                    continue
                if isinstance(event, Ended):
                    with self._lock:
                        self._run = None if self._run == event.run else self._run
                self._hear(event)
            failure = self._failure_to_start(actor)
            if failure is not None:
                self._lose(actor, failure)
                return

    def _move(
        self,
        admit: Callable[[Slot, str, str, str], bool],
        actor: Any,
        node_id: str,
        node: str,
        folder: str,
    ) -> None:
        """Start the planned run where Ray has placed its actor, once admitted."""
        try:
            may_start = admit(self, node_id, node, folder)
        except LaunchError as error:
            if self.actor is actor:
                self._hear(Refused(reason=str(error)))
            return
        except Exception as error:  # noqa: BLE001 - reported as the end of the run
            self._lose(actor, error)
            return
        with self._lock:
            if may_start and self.actor is actor:
                self._admitted = actor
                self.settle(node_id, node)
                self._start_planned(actor)

    def _failure_to_start(self, actor: Any) -> Exception | None:
        """Return the error that kept a start request from the actor, or None."""
        with self._lock:
            starting = self._starting if self.actor is actor else None
        if starting is None or not self._cluster.wait([starting], timeout=0)[0]:
            return None
        self._starting = None
        try:
            self._cluster.get(starting)
        except Exception as error:  # noqa: BLE001 - reported as the end of the run
            return error
        return None

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
                lost = "lost its node" if self._is_known_lost() else "lost its actor"
                self._end(run, f"{lost} ({brief(error)})")

    def _end(self, run: Run, cause: str, is_displaced: bool | None = None) -> None:
        """Report that a run has ended as if by SIGKILL."""
        if is_displaced is None:
            is_displaced = not self.is_movable and self._is_known_lost()
        status = -int(signal.SIGKILL)
        end = Ended(run=run, status=status, cause=cause, is_displaced=is_displaced)
        self._hear(end)

    def _give_up(self, actor: Any, run: Run) -> None:
        with self._lock:
            is_there = self.actor is actor and self._run == run
        if is_there:
            self._cluster.kill(actor)
