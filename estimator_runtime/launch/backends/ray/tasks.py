"""Tasks as children of actors on the nodes of a Ray cluster; see `task.Tasks`."""

import threading
import time
from collections.abc import Callable, Collection

from ray.exceptions import RayError

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.backends.ray.cluster import RayCluster
from estimator_runtime.launch.backends.ray.errors import brief
from estimator_runtime.launch.backends.ray.slot import RayWaits, Slot
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import Event, Events, Lost, Reported, Run, Task
from estimator_runtime.launch.terminal.console import Console

_POLL_SECS = 0.5
# Part of the path of the copy that Ray makes of --working-dir on each node.
_COPY = "/working_dir_files/"


class RayTasks:
    """The tasks of one job in a Ray cluster.

    Args:
        job: The job.
        cluster: The cluster, with room for the job.
        console: Where to report which task has been placed on which node.
        waits: How long to wait for the cluster.
    """

    def __init__(
        self,
        job: Job,
        cluster: RayCluster,
        console: Console,
        waits: RayWaits | None = None,
    ) -> None:
        self._job, self._cluster, self._console = job, cluster, console
        self._waits = waits or RayWaits()
        self._closing = threading.Event()
        self._slots: dict[Task, Slot] = {}  # from `open` on

    def open(self, events: Events, is_cancelled: Callable[[], bool]) -> None:
        """Send events to this queue from now on; see `Tasks.open`."""
        self._events, self._is_cancelled = events, is_cancelled
        self._slots = {
            task: Slot(
                task,
                index,
                self._hear,
                events,
                self._cluster,
                self._waits,
                self._closing,
            )
            for index, task in enumerate(self._job.tasks)
        }

    def place(self, addressed: Collection[Task]) -> dict[Task, str]:
        """Assign an address to every task; see `Tasks.place`."""
        answers = {
            slot: slot.fill().where.remote(task in addressed)
            for task, slot in self._slots.items()
        }
        until = time.monotonic() + self._waits.actors_secs
        while self._cluster.wait(list(answers.values()), _POLL_SECS):
            if self._is_cancelled():
                return {}
            if time.monotonic() >= until:
                raise LaunchError(
                    "Ray has not started an actor for each task in time; its logs on "
                    "the nodes may say why"
                )
        addresses = {}
        for slot, answer in answers.items():
            try:
                slot.node_id, node, slot.port = self._cluster.get(answer, _POLL_SECS)
            except RayError as error:
                reason = f"{slot.task} cannot be placed: {brief(error)}"
                raise LaunchError(reason) from error
            self._console.say(f"{slot.task} is on node {node}")
            if slot.port is not None:
                host = f"[{node}]" if ":" in node else node
                addresses[slot.task] = f"{host}:{slot.port}"
        return addresses

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run of a task, with a new actor if the last one is gone."""
        if not self._job.resources_of(run.task).gpus:
            # Else Ray keeps the value of the node.
            environ = {**environ, "CUDA_VISIBLE_DEVICES": ""}
        self._slots[run.task].start(run, environ)

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run and its children, unless the run has ended."""
        self._slots[run.task].signal(run, number)

    def close(self) -> None:
        """Kill everything that still runs, release the resources, and disconnect.

        A run on a lost node may live on until its lease is over. This waits for that,
        so that the next job does not train beside it.
        """
        self._closing.set()
        slots = self._slots.values()
        closing = [it.actor.close.remote() for it in slots if it.actor is not None]
        if closing:
            self._cluster.wait(closing, self._waits.close_secs)
        for slot in slots:
            slot.vacate()
        deadline = time.monotonic() + self._waits.gone_secs
        for slot in slots:
            slot.join(max(0.0, deadline - time.monotonic()))
        self._cluster.close()
        left = max((slot.ends_at for slot in slots), default=0.0) - time.monotonic()
        if left > 0.0:
            self._console.say(f"waiting {left:.0f} s for tasks on a lost node to end")
            time.sleep(left)

    def _hear(self, event: Event) -> None:
        """Forward an event, and end a job whose checkpoints Ray would remove."""
        self._events.put(event)
        report = event.report if isinstance(event, Reported) else {}
        folder = report.get("model_dir") or report.get("checkpoint_dir", "")
        if _COPY in folder:
            reason = (
                f"model_dir {folder!r} is in the copy of --working-dir that a node "
                "has; give the path of a folder that all nodes share"
            )
            self._events.put(Lost(reason=reason))
