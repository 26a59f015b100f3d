"""A place in a Ray cluster for each task of a job: a placement group."""

import time

import ray
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch import ray_cluster
from estimator_runtime.launch.resources import why_never

_POLL_SECS = 0.5
_SAID_AFTER_SECS = 5.0


class Placement:
    """So much of the nodes as the tasks of a job take, reserved for them.

    Attributes:
        strategy: "spread" puts tasks on as many nodes as it can, "pack" on as few.
    """

    def __init__(self, job, strategy, console):
        """Know the job; nothing is reserved yet."""
        self._asked = [job.resources_of(task) for task in job.tasks]
        self.strategy, self._console = strategy, console
        self._group = None

    def why_never(self):
        """Say why the nodes that there are can never have these tasks, or None."""
        return why_never(self._asked, ray_cluster.nodes())

    def reserve(self, timeout_secs, is_cancelled=lambda: False):
        """Reserve what the tasks take, waiting until it is free.

        After the loss of a node: what was reserved there, on others; Ray reserves
        nothing on a node that has given notice.

        Args:
            timeout_secs: Seconds to wait at most.
            is_cancelled: Tells whether nobody wants it any more.

        Raises:
            LaunchError: If there is no room in time.
        """
        if self._group is None:
            bundles = [_bundle(each) for each in self._asked]
            self._group = placement_group(bundles, strategy=self.strategy.upper())
        started = time.monotonic()
        is_said = False
        while not self._group.wait(_POLL_SECS):
            waited = time.monotonic() - started
            if waited < timeout_secs and not is_cancelled():
                if waited > _SAID_AFTER_SECS and not is_said:
                    is_said = True
                    self._console.say(f"waiting for room: {self._shortage()}")
                continue
            raise LaunchError(
                f"there was no room for the job within {timeout_secs:g} s: "
                f"{self._shortage()}; start fewer tasks, or wait longer with "
                "--placement-timeout"
            )

    def nodes(self):
        """Give the ids of the nodes, in the order of the job's tasks."""
        by_bundle = placement_group_table(self._group)["bundles_to_node_id"]
        return [by_bundle[index] for index in range(len(self._asked))]

    def options(self, index):
        """Give the options of an actor that takes the place of one task."""
        asked = self._asked[index]
        return {
            "num_cpus": asked.cpus,
            "num_gpus": asked.gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=index
            ),
        }

    def release(self):
        """Give back what is reserved; what still runs there is killed."""
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _shortage(self):
        never = self.why_never()
        if never is not None:
            return never
        free = ray.available_resources()
        asked = ", ".join(map(str, self._asked))
        return (
            f"the tasks take {asked}; free are {free.get('CPU', 0):g} CPU and "
            f"{free.get('GPU', 0):g} GPU in all"
        )


def _bundle(resources):
    # Ray takes no empty bundle.
    bundle = {"CPU": resources.cpus or 0.001}
    return {**bundle, "GPU": resources.gpus} if resources.gpus else bundle
