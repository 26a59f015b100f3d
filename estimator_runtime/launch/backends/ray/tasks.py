"""Tasks as children of actors on the nodes of a Ray cluster; see `task.Tasks`."""

import collections
import concurrent.futures
import contextlib
import functools
import os
import threading
import time
import uuid
from collections.abc import Collection

from ray.exceptions import RayError

from estimator_runtime import threads
from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.paths import is_local
from estimator_runtime.launch.backends.ray.cluster import RayCluster
from estimator_runtime.launch.backends.ray.slot import RayWaits, Slot
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import Event, Events, Refused, Reported, Run, Task
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.reporting import JOB_VARIABLE


class RayTasks:
    """The tasks of one job in a Ray cluster.

    Args:
        job: The job.
        cluster: The cluster, with room for the job.
        timeout_secs: How long to wait for room in the cluster after a loss.
        console: Where to report which task has been placed on which node.
        waits: How long to wait for the cluster otherwise.
    """

    def __init__(
        self,
        job: Job,
        cluster: RayCluster,
        timeout_secs: float,
        console: Console,
        waits: RayWaits | None = None,
    ) -> None:
        self._job, self._cluster, self._console = job, cluster, console
        self._timeout_secs, self._waits = timeout_secs, waits or RayWaits()
        self._id = uuid.uuid4().hex
        self._closing = threading.Event()
        self._slots: dict[Task, Slot] = {}  # from `open` on
        self._checked: set[tuple[str | None, str]] = set()  # nodes and folders
        self._placing: concurrent.futures.Future[Cluster] | None = None

    def open(self, events: Events, is_cancelled: object = None) -> None:
        """Send events to this queue from now on; see `Tasks.open`."""
        self._events = events
        self._slots = {
            task: Slot(
                task,
                functools.partial(self._cluster.create, index),
                self._hear,
                events,
                self._cluster,
                self._waits,
                self._closing,
            )
            for index, task in enumerate(self._job.tasks)
        }

    def place(self, addressed: Collection[Task]) -> Cluster | None:
        """Assign an address to every task; see `Tasks.place`.

        A thread does this, while the supervisor calls this method again and again.
        """
        if self._placing is None:
            self._placing = concurrent.futures.Future()
            # A daemon, so that a cluster that does not answer cannot delay the end of
            # this process.
            threads.start("placing", self._place, self._placing, addressed)
        if not self._placing.done():
            return None
        placing, self._placing = self._placing, None
        return placing.result()

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
        slots = self._slots.values()
        closing = [it.actor.close.remote() for it in slots if it.actor is not None]
        if closing:
            self._cluster.wait(closing, self._waits.close_secs)
        for slot in slots:
            slot.vacate()
        deadline = time.monotonic() + self._waits.gone_secs
        for slot in slots:
            slot.join(max(0.0, deadline - time.monotonic()))
        if self._placing is not None:
            # Without its actors, it has to wait for nothing that takes long.
            left = max(0.0, deadline - time.monotonic())
            concurrent.futures.wait([self._placing], left)
        self._cluster.close()

    def _place(
        self,
        placing: concurrent.futures.Future[Cluster],
        addressed: Collection[Task],
    ) -> None:
        """Place all tasks, and set the result."""
        try:
            placing.set_result(self._take_addresses(addressed))
        except BaseException as error:  # noqa: BLE001 - raised by its `result`
            placing.set_exception(error)

    def _take_addresses(self, addressed: Collection[Task]) -> Cluster:
        self._cluster.reserve(self._timeout_secs, self._closing.is_set)
        until = time.monotonic() + self._timeout_secs + self._waits.actors_secs
        for slot in self._slots.values():  # all start at the same time
            slot.fill()
        jobs: collections.defaultdict[str, list[str]] = collections.defaultdict(list)
        for task, slot in self._slots.items():
            node = slot.place(task in addressed, until, self._console.say)
            self._console.say(f"{task} is on node {node}")
            if slot.port is not None:
                host = f"[{node}]" if ":" in node else node
                jobs[task.type].append(f"{host}:{slot.port}")
        return Cluster(jobs)

    def _hear(self, event: Event) -> None:
        """Forward an event, and check the folder that it may name in a thread.

        That is the model directory of an Estimator, or the folder to which a session of
        the leader saves.
        """
        self._events.put(event)
        if not isinstance(event, Reported):
            return
        path = event.report.get("model_dir")
        if path is None and event.run.task == self._job.trainers[0]:
            path = event.report.get("checkpoint_dir")
        # TensorFlow reads a remote folder, the same on all nodes.
        if path is None or not is_local(path):
            return
        where = self._slots[event.run.task].node_id, path
        if where in self._checked:
            return
        self._checked.add(where)
        threads.start("check", self._check_folder, event.run, path)

    def _check_folder(self, run: Run, path: str) -> None:
        """Refuse a folder that this machine and the node of a run do not share.

        The task could not go on from its checkpoints wherever it is restarted.
        """
        token = os.path.join(path, f".estimator-runtime-{uuid.uuid4().hex}")
        try:
            os.makedirs(path, exist_ok=True)
            open(token, "x").close()
            slot, timeout_secs = self._slots[run.task], self._waits.actors_secs
            problem = slot.ask("problem_with", token, timeout_secs)
        except RayError:
            return  # the run has ended, and the next one reports the folder
        except OSError as error:
            problem = (
                f"the machine of the launcher cannot write to model_dir {path!r}: "
                f"{error.strerror}; use a folder that it shares with all nodes"
            )
        finally:
            with contextlib.suppress(OSError):
                os.remove(token)
        if problem is not None:
            self._events.put(Refused(reason=problem))
