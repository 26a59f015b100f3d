"""The placement of a job's tasks in a Ray cluster, at first and after a loss."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.backends.ray import cluster as ray_cluster
from estimator_runtime.launch.backends.ray.cluster import NodeLostError, RayCluster
from estimator_runtime.launch.backends.ray.errors import brief
from estimator_runtime.launch.job import Job, Resources, why_never
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console

if TYPE_CHECKING:
    from estimator_runtime.launch.backends.ray.slot import Slot

_POLL_SECS = 0.5
_SAID_AFTER_SECS = 5.0


class Placement:
    """The resources that are reserved for the tasks of a job: Ray's placement group.

    Args:
        job: The job.
        strategy: "spread" places tasks on as many nodes as possible, "pack" on as few
            as possible.
        console: Where to report a wait for room.
    """

    def __init__(self, job: Job, strategy: str, console: Console) -> None:
        self._asked = [job.resources_of(task) for task in job.tasks]
        self._strategy, self._console = strategy, console
        self._group: Any = None  # the reserved placement group of Ray

    def why_never(self) -> str | None:
        """Return why the present nodes can never run these tasks, or None."""
        return why_never(self._asked, ray_cluster.nodes())

    def reserve(
        self, timeout_secs: float, is_cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Reserve what the tasks need, waiting until it is free.

        After the loss of a node, wait until its share is reserved on other nodes.

        Args:
            timeout_secs: The longest wait, in seconds.
            is_cancelled: Returns whether the reservation is no longer needed.

        Raises:
            LaunchError: If there is no room in time, or the wait is cancelled.
        """
        if self._group is None:
            bundles = [_bundle(each) for each in self._asked]
            self._group = placement_group(bundles, strategy=self._strategy.upper())
        started = time.monotonic()
        is_reported = False
        while not self._group.wait(_POLL_SECS):
            waited = time.monotonic() - started
            if waited < timeout_secs and not is_cancelled():
                if waited > _SAID_AFTER_SECS and not is_reported:
                    is_reported = True
                    self._console.say(f"waiting for room: {self._shortage()}")
                continue
            raise LaunchError(
                f"there was no room for the job within {timeout_secs:g} s: "
                f"{self._shortage()}; start fewer tasks, or wait longer with "
                "--placement-timeout"
            )

    def nodes(self) -> list[str]:
        """Return the id of the node of each task, in the order of the job's tasks."""
        by_bundle = placement_group_table(self._group)["bundles_to_node_id"]
        return [by_bundle[index] for index in range(len(self._asked))]

    def options(self, index: int) -> dict[str, Any]:
        """Return Ray's options for the actor of the task at this index of the job."""
        asked = self._asked[index]
        return {
            "num_cpus": asked.cpus,
            "num_gpus": asked.gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=index
            ),
        }

    def release(self) -> None:
        """Release what is reserved, which kills everything that still runs there."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _shortage(self) -> str:
        """Return why there is no room, for the user."""
        never = self.why_never()
        if never is not None:
            return never
        free = ray.available_resources()
        asked = ", ".join(map(str, self._asked))
        return (
            f"the tasks take {asked}; free are {free.get('CPU', 0):g} CPU and "
            f"{free.get('GPU', 0):g} GPU in all"
        )


def _bundle(resources: Resources) -> dict[str, float]:
    # Ray rejects an empty bundle.
    bundle = {"CPU": resources.cpus or 0.001}
    return {**bundle, "GPU": resources.gpus} if resources.gpus else bundle


class Scheduler:
    """Fills the slots of all tasks with actors, on nodes that are alive.

    When a node is lost, Ray reserves its share on other nodes, and the other actors
    stay.

    Args:
        slots: The slot of every task, all empty, in the order of the job's tasks.
        placement: The reserved placement of the job.
        timeout_secs: How long to wait for room in the cluster after a loss.
        console: Where to report delays.
        is_closing: An event that is set at the end of the job.
        cluster: The cluster that runs the actors.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        placement: Placement,
        timeout_secs: float,
        console: Console,
        is_closing: threading.Event,
        cluster: RayCluster,
    ) -> None:
        self._cluster, self._waits = cluster, cluster.waits
        self._slots, self._placement = slots, placement
        self._timeout_secs, self._console = timeout_secs, console
        self._is_closing = is_closing
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
        limit_secs = 2 * self._timeout_secs + self._waits.actors_secs
        deadline, reported = time.monotonic() + limit_secs, None
        while True:
            try:
                self._reserve()
                return self._take(addressed)
            except NodeLostError as error:
                if time.monotonic() > deadline or self._is_closing.is_set():
                    raise
                if str(error) != reported:
                    reported = str(error)
                    self._console.say(f"placing the tasks again: {error}")
            except RayError as error:
                reason = f"the tasks cannot be placed: {brief(error)}"
                raise LaunchError(reason) from error
            self._is_closing.wait(self._waits.retry_secs)

    def _reserve(self) -> None:
        """Reserve room for all tasks, on nodes that are alive."""
        self._placement.reserve(self._timeout_secs, self._is_closing.is_set)
        nodes = self._placement.nodes()
        known = self._cluster.addresses()
        where = [(node, known.get(node, node)) for node in nodes]
        self._reserved = dict(zip(self._slots, where, strict=True))
        for node, address in where:
            if not self._cluster.is_alive(node):
                raise NodeLostError(f"Ray has yet to move what was on node {address}")
        self._cluster.check_nodes(nodes)

    def _take(self, addressed: Collection[Task]) -> tuple[Cluster, set[str]]:
        """Fill every slot with an actor in its reserved place; see `fill`."""
        deadline = time.monotonic() + self._waits.actors_secs
        actors = {slot: slot.fill() for slot in self._slots}
        places = {
            slot: actor.where.remote(slot.task in addressed)
            for slot, actor in actors.items()
        }
        done, waiting = self._cluster.wait(
            list(places.values()), timeout=self._waits.silent_secs
        )
        if waiting:
            late = [slot for slot, place in places.items() if place not in done]
            who = ", ".join(map(self._name, late))
            self._console.say(f"waiting for the actor of {who}")
        jobs: defaultdict[str, list[str]] = defaultdict(list)
        folders: set[str] = set()
        for slot, place in places.items():
            node_id, node, folder, port = self._answer(slot, place, deadline)
            if node_id != self._reserved[slot][0]:
                raise NodeLostError(f"Ray has moved {slot.task} to node {node}")
            slot.node_id, slot.node, slot.port = node_id, node, port
            folders.add(folder)
            if port is not None:
                host = f"[{node}]" if ":" in node else node
                jobs[slot.task.type].append(f"{host}:{port}")
        return Cluster(jobs), folders

    def _answer(self, slot: Slot, answer: Any, deadline: float) -> Any:
        """Return what a slot's actor has answered, or raise `LaunchError`."""
        who, (node_id, node) = self._name(slot), self._reserved[slot]
        try:
            timeout = max(0.0, deadline - time.monotonic())
            return self._cluster.get(answer, timeout=timeout)
        except GetTimeoutError as error:
            # Ray may have reserved room on a lost node: it takes up to 65 s to notice.
            if not self._cluster.is_alive(node_id):
                raise NodeLostError(f"node {node} is gone") from error
            raise LaunchError(
                f"no actor was started for {who} within {self._waits.actors_secs:g} s; "
                "Ray's logs there may say why"
            ) from error
        except RayActorError as error:
            if error.actor_init_failed:
                reason = f"{who} cannot be placed: {brief(error)}"
                raise LaunchError(reason) from error
            raise NodeLostError(f"{who} has lost its actor: {brief(error)}") from error

    def _name(self, slot: Slot) -> str:
        return f"{slot.task} on node {self._reserved[slot][1]}"
