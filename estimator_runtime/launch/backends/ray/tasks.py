"""Tasks as children of actors on the nodes of a Ray cluster; see `task.Tasks`."""

import concurrent.futures
import threading
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.launch.backends.ray.cluster import RayCluster
from estimator_runtime.launch.backends.ray.model_dir import ModelDir
from estimator_runtime.launch.backends.ray.placement import Placement, Scheduler
from estimator_runtime.launch.backends.ray.slot import Slot
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import Event, Events, Reported, Run, Task
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.reporting import JOB_VARIABLE

# A placement under way: the addresses and the working directories of the tasks.
_Placing = concurrent.futures.Future[tuple[Cluster, set[str]]]


class RayTasks:
    """The tasks of one job in a Ray cluster.

    Args:
        job: The job.
        placement: The reserved placement of the job.
        timeout_secs: How long to wait for room in the cluster after a loss.
        console: Where to report which task has been placed on which node.
        cluster: The cluster.
    """

    def __init__(
        self,
        job: Job,
        placement: Placement,
        timeout_secs: float,
        console: Console,
        cluster: RayCluster,
    ) -> None:
        self._job, self._placement, self._cluster = job, placement, cluster
        self._console = console
        self._id = uuid.uuid4().hex
        self._closing = threading.Event()
        options = placement.options
        slots = [
            Slot(task, job, options(index), self._hear, self._takes_lines, cluster)
            for index, task in enumerate(job.tasks)
        ]
        self._slots = dict(zip(job.tasks, slots, strict=True))
        self._scheduler = Scheduler(
            slots, placement, timeout_secs, console, self._closing, cluster
        )
        self._model_dir = ModelDir(job.trainers[0], self._actors, cluster, self._hear)
        self._placing: _Placing | None = None

    def open(self, events: Events, is_cancelled: Callable[[], bool]) -> None:
        """Send events to this queue from now on; see `Tasks.open`."""
        self._events = events

    def place(self, addressed: Collection[Task]) -> Cluster | None:
        """Assign an address to every task; see `Tasks.place`.

        A thread does this, while the supervisor calls this method again and again.
        """
        if self._placing is None:
            self._placing = concurrent.futures.Future()
            # A daemon, so that a cluster that does not answer cannot delay the end of
            # this process.
            threading.Thread(
                target=self._fill,
                args=(self._placing, addressed),
                name="estimator_runtime placing",
                daemon=True,
            ).start()
        if not self._placing.done():
            return None
        placing, self._placing = self._placing, None
        cluster, folders = placing.result()
        for task, slot in self._slots.items():
            self._console.say(f"{task} is on node {slot.node}")
        if self._cluster.folder is None:
            self._model_dir.copies |= folders
        return cluster

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run of a task, with a new actor if the last one is gone."""
        environ = {**environ, JOB_VARIABLE: self._id}
        if not self._job.resources_of(run.task).gpus:
            environ["CUDA_VISIBLE_DEVICES"] = ""  # else Ray keeps the value of the node
        self._slots[run.task].start(run, environ)

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run and its children, unless the run has ended."""
        self._slots[run.task].signal(run, number)

    def close(self) -> None:
        """Kill everything that still runs, release the resources, and disconnect."""
        self._closing.set()
        actors = [slot.actor for slot in self._slots.values() if slot.actor is not None]
        closing = [actor.close.remote() for actor in actors]
        if closing:
            self._cluster.wait(closing, timeout=self._cluster.waits.close_secs)
        for slot in self._slots.values():
            slot.vacate()
        deadline = time.monotonic() + self._cluster.waits.gone_secs
        for slot in self._slots.values():
            slot.join(max(0.0, deadline - time.monotonic()))
        if self._placing is not None:
            # Without its actors, it has to wait for nothing that takes long.
            left = max(0.0, deadline - time.monotonic())
            concurrent.futures.wait([self._placing], left)
        self._placement.release()
        self._cluster.disconnect()

    def _fill(self, placing: _Placing, addressed: Collection[Task]) -> None:
        """Fill all slots, and set the result of the placement."""
        try:
            placing.set_result(self._scheduler.fill(addressed))
        except BaseException as error:  # noqa: BLE001 - raised by its `result`
            placing.set_exception(error)

    def _actors(self) -> dict[str, Any]:
        """Return the actor of a task on each node, by the address of the node."""
        slots = reversed(self._slots.values())
        return {it.node: it.actor for it in slots if it.node and it.actor is not None}

    def _hear(self, event: Event) -> None:
        """Forward an event, and check the folder that it may name."""
        if isinstance(event, Reported):
            self._model_dir.hear(event)
        self._events.put(event)

    def _takes_lines(self) -> bool:
        return self._events.takes_lines()
