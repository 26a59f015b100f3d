"""The placement of a job's tasks in a Ray cluster, at first and after a loss."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ray.exceptions import RayActorError, RayError

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.ray.errors import brief
from estimator_runtime.launch.ray.nodes import NodeSilentError
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console

if TYPE_CHECKING:
    from estimator_runtime.launch.ray.cluster import RayCluster, RayWaits
    from estimator_runtime.launch.ray.placement import Placement
    from estimator_runtime.launch.ray.slot import Slot


class _NotYetError(LaunchError):
    """Raised when a node or an actor is lost meanwhile; a later attempt may succeed."""


class Scheduler:
    """Fills the slots of all tasks with actors, on nodes that are alive and stay.

    When a node is lost, Ray reserves its share on other nodes, and the other actors
    stay. When a node has given notice, everything is released and reserved again: a
    leaving node shuts down once nothing on it is in use, and Ray reserves nothing
    more there.

    Args:
        slots: The slot of every task, all empty, in the order of the job's tasks.
        placement: The reserved placement of the job.
        checked: The ids of the nodes that are known to be able to run tasks.
        folder: The working directory of the tasks; None for the copy of a folder that
            Ray has made on each node.
        timeout_secs: How long to wait for room in the cluster after a loss.
        console: Where to report delays.
        is_closing: An event that is set at the end of the job.
        cluster: The cluster that runs the actors.
        waits: How long to wait for it.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        placement: Placement,
        checked: Iterable[str],
        folder: str | None,
        timeout_secs: float,
        console: Console,
        is_closing: threading.Event,
        cluster: RayCluster,
        waits: RayWaits,
    ) -> None:
        self._cluster, self._waits = cluster, waits
        self._slots, self._placement, self._folder = slots, placement, folder
        self._timeout_secs, self._console = timeout_secs, console
        self._is_closing = is_closing
        self._checked = set(checked)
        # The id and the address of the node that is reserved for each slot.
        self._reserved: dict[Slot, tuple[str, str]] = {}

    def fill(self, addressed: Collection[Task]) -> tuple[Cluster, set[str]]:
        """Fill every slot with an actor, trying again while nodes or actors are lost.

        Args:
            addressed: The tasks that need an address.

        Returns:
            The addresses of these tasks, and the working directories of all tasks.

        Raises:
            LaunchError: If there is no room in time, or a node is not suitable.
        """
        started, reported = time.monotonic(), None
        while True:
            try:
                self._reserve()
                return self._take(addressed)
            except (_NotYetError, NodeSilentError) as error:
                waited = time.monotonic() - started
                is_over = waited > 2 * self._timeout_secs + self._waits.actors_secs
                if is_over or self._is_closing.is_set():
                    raise
                if waited > self._waits.silent_secs and str(error) != reported:
                    reported = str(error)
                    self._console.say(f"placing the tasks again: {error}")
            except RayError as error:
                reason = f"the tasks cannot be placed: {brief(error)}"
                raise LaunchError(reason) from error
            self._is_closing.wait(self._waits.retry_secs)

    def admit(self, slot: Slot, node_id: str) -> bool:
        """Wait until a task may be started on a node that Ray has chosen meanwhile.

        Returns:
            Whether the task may be started: False if the node is gone, or at the end
            of the job.

        Raises:
            LaunchError: If the node is not suitable, or does not answer within the time
                that a placement may take.
        """
        self._wait_for_ends([slot] if slot.has_lost_node() else [])
        started = time.monotonic()
        while not self._is_closing.is_set() and self._cluster.is_alive(node_id):
            try:
                self._check({node_id})
                return True
            except NodeSilentError:
                if time.monotonic() - started > self._timeout_secs:
                    raise
                self._is_closing.wait(self._waits.retry_secs)
        return False

    def _reserve(self) -> None:
        """Reserve room for all tasks, on nodes that are alive and stay."""
        if any(slot.is_leaving for slot in self._slots):
            self._give_back()
        self._wait_for_ends([slot for slot in self._slots if slot.has_lost_node()])
        self._placement.reserve(self._timeout_secs, self._is_closing.is_set)
        nodes = self._placement.nodes()
        known = self._cluster.addresses()
        where = [(node, known.get(node, node)) for node in nodes]
        self._reserved = dict(zip(self._slots, where, strict=True))
        for node, address in where:
            if not self._cluster.is_alive(node):
                raise _NotYetError(f"Ray has yet to move what was on node {address}")
        if self._cluster.leaving().intersection(nodes):
            self._give_back()
            raise _NotYetError("one of the nodes is about to leave")
        self._check(set(nodes))

    def _check(self, nodes: set[str]) -> None:
        """Check those of the nodes that have not been checked before."""
        new = nodes - self._checked
        if new:
            self._cluster.check_nodes(new, self._folder)
            self._checked |= new

    def _give_back(self) -> None:
        """End everything that runs, and release what is reserved."""
        # First, before an end is noticed otherwise: the supervisor would restart the
        # task where it is.
        for slot in self._slots:
            if slot.evict():
                self._console.say(
                    f"{slot.task} has to leave node {slot.node}: all are placed anew"
                )
        closing = {
            slot: actor.close.remote() for slot in self._slots if (actor := slot.actor)
        }
        if closing:
            answers = list(closing.values())
            self._cluster.wait(answers, timeout=self._waits.close_secs)
        unsure = [
            slot
            for slot in self._slots
            if (
                self._has_failed(closing[slot])
                if slot in closing
                else slot.has_lost_node()
            )
        ]
        for slot in self._slots:
            slot.vacate(is_closed=slot not in unsure)
            slot.is_leaving = False
        self._placement.release()
        self._wait_for_ends(unsure)

    def _wait_for_ends(self, slots: Iterable[Slot]) -> None:
        """Wait until everything has ended that nodes which do not answer may run."""
        # Where something was started the slot has a node, which mypy cannot see.
        ends = [
            (end, cast(str, slot.node))
            for slot in slots
            if (end := slot.lives_until()) is not None
        ]
        left = max(ends)[0] - time.monotonic() if ends else 0.0
        if left > 0:
            nodes = ", ".join(sorted({node for _, node in ends}))
            self._console.say(
                f"waiting {left:.0f} s for what may still run on node {nodes} to end "
                "by itself"
            )
            self._is_closing.wait(left)

    def _take(self, addressed: Collection[Task]) -> tuple[Cluster, set[str]]:
        """Fill every slot with an actor in its reserved place; see `fill`."""
        actors = {
            slot: slot.fill(self._placement.options(index))
            for index, slot in enumerate(self._slots)
        }
        places = {slot: actor.where.remote() for slot, actor in actors.items()}
        ports = {
            slot: actor.take_port.remote()
            for slot, actor in actors.items()
            if slot.task in addressed
        }
        self._wait_for_actors(places)
        jobs: defaultdict[str, list[str]] = defaultdict(list)
        folders: set[str] = set()
        for slot, place in places.items():
            node_id, node, folder = self._answer(slot, place)
            if node_id != self._reserved[slot][0]:
                raise _NotYetError(f"Ray has moved {slot.task} to node {node}")
            slot.settle(node_id, node)
            folders.add(folder)
            if slot in ports:
                slot.port = self._answer(slot, ports[slot])
                host = f"[{node}]" if ":" in node else node
                jobs[slot.task.type].append(f"{host}:{slot.port}")
        return Cluster(jobs), folders

    def _wait_for_actors(self, answers: Mapping[Slot, Any]) -> None:
        """Wait for the first answer of each slot's actor, while the nodes are alive.

        Raises:
            LaunchError: If a node is gone, an actor does not start in time, or the job
                ends.
        """
        started, is_reported = time.monotonic(), False
        waiting = answers
        while True:
            done, _ = self._cluster.wait(
                list(waiting.values()), timeout=self._waits.retry_secs
            )
            waiting = {slot: it for slot, it in waiting.items() if it not in done}
            if not waiting:
                return
            waited = time.monotonic() - started
            who = ", ".join(map(self._name, waiting))
            if self._is_closing.is_set():
                raise LaunchError(f"the job ended before the start of {who}")
            # Ray may have reserved room on a lost node: it takes up to 65 s to notice.
            for node, address in {self._reserved[slot] for slot in waiting}:
                if not self._cluster.is_alive(node):
                    raise _NotYetError(f"node {address} is gone")
            limit_secs = self._waits.actors_secs
            if waited > limit_secs:
                raise LaunchError(
                    f"no actor was started for {who} within {limit_secs:g} s; "
                    "Ray's logs there may say why"
                )
            if waited > self._waits.silent_secs and not is_reported:
                is_reported = True
                self._console.say(f"waiting for the actor of {who}")

    def _answer(self, slot: Slot, answer: Any) -> Any:
        """Return what a slot's actor has answered, or raise `LaunchError`."""
        who = self._name(slot)
        try:
            return self._cluster.get(answer, timeout=self._waits.actors_secs)
        except RayActorError as error:
            if error.actor_init_failed:
                reason = f"{who} cannot be placed: {brief(error)}"
                raise LaunchError(reason) from error
            raise _NotYetError(f"{who} has lost its actor: {brief(error)}") from error
        except RayError as error:
            raise LaunchError(f"{who} cannot be placed: {brief(error)}") from error

    def _name(self, slot: Slot) -> str:
        return f"{slot.task} on node {self._reserved[slot][1]}"

    def _has_failed(self, answer: Any) -> bool:
        """Return whether a call of an actor has failed, or has not completed."""
        try:
            self._cluster.get(answer, timeout=0)
        except RayError:
            return True
        return False
