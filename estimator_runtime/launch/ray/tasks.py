"""Tasks as children of actors on the nodes of a Ray cluster; see `task.Tasks`."""

import concurrent.futures
import dataclasses
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import cast

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.role import TaskType
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.ray.cluster import RayCluster, RayWaits
from estimator_runtime.launch.ray.model_dir import ModelDir
from estimator_runtime.launch.ray.placement import Placement
from estimator_runtime.launch.ray.scheduling import Scheduler
from estimator_runtime.launch.ray.slot import Slot
from estimator_runtime.launch.task import (
    Ended,
    Event,
    Events,
    Leaving,
    Reported,
    Run,
    Task,
)
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.reporting import JOB_VARIABLE

_logger = logging.getLogger(__name__)
# A placement under way: the addresses and the working directories of the tasks.
_Placing = concurrent.futures.Future[tuple[Cluster, set[str]]]


class RayTasks:
    """The tasks of one job in a Ray cluster.

    Args:
        job: The job.
        placement: The reserved placement of the job.
        nodes: The ids of the nodes that are known to be able to run tasks.
        folder: The working directory of the tasks; None for the copy of a folder that
            Ray has made on each node.
        timeout_secs: How long to wait for room in the cluster after a loss.
        console: Where to report which task has been placed on which node.
        cluster: The cluster; None for the one that this process is connected to.
        waits: How long to wait for the cluster; None for the defaults.
    """

    def __init__(
        self,
        job: Job,
        placement: Placement,
        nodes: Iterable[str],
        folder: str | None,
        timeout_secs: float,
        console: Console,
        cluster: RayCluster | None = None,
        waits: RayWaits | None = None,
    ) -> None:
        self._cluster, self._waits = cluster or RayCluster(), waits or RayWaits()
        self._job, self._placement, self._folder = job, placement, folder
        self._console = console
        self._id = uuid.uuid4().hex
        self._closing = threading.Event()
        self._slots = {task: self._slot_of(task) for task in job.tasks}
        slots = list(self._slots.values())
        self._scheduler = Scheduler(
            slots,
            placement,
            nodes,
            folder,
            timeout_secs,
            console,
            self._closing,
            self._cluster,
            self._waits,
        )
        self._model_dir = ModelDir(
            job.trainers[0], console, self._closing, self._cluster, self._waits
        )
        self._placing: _Placing | None = None

    def _slot_of(self, task: Task) -> Slot:
        # No other task connects to an evaluator.
        admit = self._admit if task.type == TaskType.EVALUATOR else None
        return Slot(
            task,
            self._job,
            self._folder,
            self._hear,
            self._takes_lines,
            self._cluster,
            self._waits,
            admit,
        )

    def open(self, events: Events, is_cancelled: Callable[[], bool]) -> None:
        """Send events to this queue from now on; see `Tasks.open`."""
        self._events = events
        threading.Thread(
            target=self._watch_nodes, name="estimator_runtime nodes", daemon=True
        ).start()

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
        nodes = {cast(str, slot.node): slot for slot in reversed(self._slots.values())}
        self._model_dir.move(nodes, self._copies(folders))
        return cluster

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Start a run of a task, with a new actor if the last one is gone."""
        environ = {**environ, JOB_VARIABLE: self._id}
        if not self._job.resources_of(run.task).gpus:
            environ["CUDA_VISIBLE_DEVICES"] = ""  # else Ray keeps the value of the node
        slot = self._slots[run.task]
        if self._has_notice and not slot.is_movable:
            slot.refuse(run, "a node of the job is about to leave")
        else:
            slot.start(run, environ)

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run and its children, unless the run has ended."""
        self._slots[run.task].signal(run, number)

    def close(self) -> None:
        """Kill everything that still runs, release the resources, and disconnect."""
        self._closing.set()
        actors = [slot.actor for slot in self._slots.values() if slot.actor is not None]
        closing = [actor.close.remote() for actor in actors]
        if closing:
            self._cluster.wait(closing, timeout=self._waits.close_secs)
        for slot in self._slots.values():
            slot.vacate()
        deadline = time.monotonic() + self._waits.gone_secs
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

    def _admit(self, slot: Slot, node_id: str, node: str, folder: str) -> bool:
        """Wait until a task may start where Ray has placed it; see `Slot`."""
        may_start = self._scheduler.admit(slot, node_id)
        if may_start:
            self._model_dir.move_one(slot, node, self._copies({folder}))
        return may_start

    def _copies(self, folders: Iterable[str]) -> Iterable[str]:
        """Return those of the tasks' directories that are copies made by Ray."""
        return folders if self._folder is None else ()

    def _hear(self, event: Event) -> None:
        """Forward an event, and act on what it means for the cluster."""
        # The cause of a failure does not matter: no task is restarted while a node of
        # the job is about to leave.
        if isinstance(event, Ended) and event.status != 0 and self._has_notice:
            if not self._slots[event.run.task].is_movable:
                event = dataclasses.replace(event, is_displaced=True)
        elif isinstance(event, Reported):
            self._model_dir.hear(event, self._events.put)
        self._events.put(event)

    def _takes_lines(self) -> bool:
        return self._events.takes_lines()

    # Notices of nodes.

    @property
    def _has_notice(self) -> bool:
        """Whether a node has given notice, so that all tasks with addresses move."""
        return any(slot.is_leaving for slot in self._slots.values())

    def _watch_nodes(self) -> None:
        """Check the nodes regularly until the end of the job."""
        while not self._closing.wait(self._waits.look_every_secs):
            for slot in self._slots.values():
                try:
                    slot.give_up_lost_start()
                except Exception:  # the next check will do; notices must not be missed
                    _logger.debug("cannot check %s", slot.task, exc_info=True)
            self._look_for_notices()

    def _look_for_notices(self) -> None:
        """Report, once each, the nodes with addresses of the job that are to leave."""
        leaving = self._cluster.leaving()
        # An evaluator is restarted when its node is gone, as no task has its address.
        addressed = [it for it in self._slots.values() if not it.is_movable]
        new = [it for it in addressed if it.node_id in leaving and not it.is_leaving]
        if not new:
            return
        # All may be done already, for instance while the evaluator evaluates the last
        # model.
        is_busy = any(slot.has_run for slot in addressed)
        then = ": stopping the job with a checkpoint, to place it anew"
        for slot in new:
            slot.is_leaving = True
        self._events.put(Leaving())
        for slot in new:
            self._console.say(
                f"node {slot.node} of {slot.task} is about to leave"
                f"{then if is_busy else ''}"
            )
