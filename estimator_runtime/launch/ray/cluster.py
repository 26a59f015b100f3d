"""What the tasks of a job need of a Ray cluster, and how long they wait for it."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import ray

from estimator_runtime.launch.job import Job
from estimator_runtime.launch.ray import nodes
from estimator_runtime.launch.ray.actor import LEASE_SECS, TaskActor

# The supervisor restarts a failed task, never Ray.
_ACTOR_CLASS = ray.remote(
    max_restarts=0, concurrency_groups={"events": 1, "files": 1, "place": 1}
)(TaskActor)


@dataclasses.dataclass(frozen=True)
class RayWaits:
    """How long the tasks of a job wait for a cluster, in seconds.

    Attributes:
        close_secs: For tasks that can be reached to end.
        gone_secs: Then, for Ray to report that all actors are gone.
        look_every_secs: Between two checks of the nodes.
        retry_secs: Before a node, an actor or a placement is tried again.
        actors_secs: For all actors to start, each of which is a new Python process on
            its node.
        silent_secs: Before a delay is reported.
        lease_secs: How long a task lives on without an answer of this machine.
        lease_margin_secs: Allows for the time that the kill at the end of a lease
            takes, and for clocks that run at different speeds.
        answer_secs: For an actor to write a file.
        ask_again_secs: Before the nodes are asked again whether they share a folder.
        seen_secs: For a new file to be seen from this machine, which may take a while
            on a network file system.
    """

    close_secs: float = 20.0
    gone_secs: float = 10.0
    look_every_secs: float = 2.0
    retry_secs: float = 1.0
    actors_secs: float = 120.0
    silent_secs: float = 5.0
    lease_secs: float = LEASE_SECS
    lease_margin_secs: float = 5.0
    answer_secs: float = 30.0
    ask_again_secs: float = 5.0
    seen_secs: float = 5.0


class RayCluster:
    """The cluster that this process is connected to; see `nodes.connect`."""

    def __init__(self) -> None:
        # What this machine and the first node have installed; see `nodes.check_nodes`.
        self._first: dict[str, dict[str, str]] = {}

    def create(self, options: dict[str, Any], job: Job, folder: str | None) -> Any:
        """Return the handle of a new `TaskActor`, created with Ray's options."""
        return _ACTOR_CLASS.options(**options).remote(job, folder)

    def get(self, answer: Any, timeout: float | None = None) -> Any:
        """Return what an actor answers within some seconds, or raise its error."""
        return ray.get(answer, timeout=timeout)

    def wait(self, answers: Sequence[Any], timeout: float) -> tuple[list, list]:
        """Return the answers that are there within some seconds, and the others."""
        return ray.wait(list(answers), num_returns=len(answers), timeout=timeout)

    def kill(self, actor: Any) -> None:
        """Kill an actor and everything that it has started."""
        ray.kill(actor)

    def is_alive(self, node_id: str) -> bool:
        """Return whether a node is alive, as far as Ray knows."""
        return nodes.is_alive(node_id)

    def leaving(self) -> set[str]:
        """Return the ids of the nodes that are about to leave."""
        return nodes.leaving()

    def addresses(self) -> dict[str, str]:
        """Return the address of each node by its id, including nodes that are gone."""
        return nodes.addresses()

    def check_nodes(self, node_ids: Iterable[str], folder: str | None) -> None:
        """Check that tasks can run on these nodes; see `nodes.check_nodes`."""
        nodes.check_nodes(node_ids, folder, self._first)

    def disconnect(self) -> None:
        """Leave the cluster, which ends everything that this process runs there."""
        nodes.disconnect()
