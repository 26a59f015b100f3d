"""The placement group of a job, which reserves room for each task in a Ray cluster."""

import time
from collections.abc import Callable
from typing import Any

import ray
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.job import Job, Resources, why_never
from estimator_runtime.launch.ray import nodes as ray_nodes
from estimator_runtime.launch.terminal.console import Console

_POLL_SECS = 0.5
_SAID_AFTER_SECS = 5.0


class Placement:
    """The resources that are reserved for the tasks of a job.

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
        return why_never(self._asked, ray_nodes.nodes())

    def reserve(
        self, timeout_secs: float, is_cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Reserve what the tasks need, waiting until it is free.

        After the loss of a node, wait until its share is reserved on other nodes. Ray
        reserves nothing on a node that has given notice.

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
