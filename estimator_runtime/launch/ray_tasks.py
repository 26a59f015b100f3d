"""Tasks as children of actors on the nodes of a Ray cluster; see `task.Tasks`."""

import concurrent.futures
import dataclasses
import threading
import time
import uuid

import ray

from estimator_runtime.launch import ray_cluster
from estimator_runtime.launch.ray_model_dir import ModelDir
from estimator_runtime.launch.ray_movable_seat import MovableSeat
from estimator_runtime.launch.ray_notices import Notices
from estimator_runtime.launch.ray_seat import Seat
from estimator_runtime.launch.ray_seating import Seating
from estimator_runtime.launch.task import Ended, Reported
from estimator_runtime.reporting import JOB_VARIABLE
from estimator_runtime.role import TaskType

# For tasks to end that can be reached; then, for Ray to say of all that they are gone.
_CLOSE_SECS = 20.0
_GONE_SECS = 10.0


class RayTasks:
    """Runs the tasks of one job in a Ray cluster."""

    def __init__(self, job, placement, nodes, folder, timeout_secs, console):
        """Know the job and where its tasks are to run; start nothing.

        Args:
            job: The `Job`.
            placement: Its `Placement`, reserved.
            nodes: The ids of the nodes on which tasks can run, as far as known.
            folder: Where tasks run; None for where Ray has put its copy of a folder.
            timeout_secs: How long to wait for room in the cluster after a loss.
            console: Where to say what has been placed where.
        """
        self._job, self._placement, self._folder = job, placement, folder
        self._console = console
        self._id = uuid.uuid4().hex
        self._closing = threading.Event()
        self._seats = {task: self._seat_of(task) for task in job.tasks}
        seats = list(self._seats.values())
        self._seating = Seating(
            seats, placement, nodes, folder, timeout_secs, console, self._closing
        )
        self._notices = Notices(seats, console, self._closing)
        self._model_dir = ModelDir(job.trainers[0], console, self._closing)
        self._placing = None

    def _seat_of(self, task):
        parts = task, self._job, self._folder, self._hear, self._takes_lines
        if task.type == TaskType.EVALUATOR:  # nobody connects to it
            return MovableSeat(*parts, self._admit)
        return Seat(*parts)

    def open(self, events, is_cancelled):
        """Let events go to this queue; returns at once."""
        self._events = events
        self._notices.open(events)

    def place(self, addressed):
        """Give every task an address; see `Tasks.place`.

        It is done beside the supervisor, which asks again meanwhile.
        """
        if self._placing is None:
            self._placing = concurrent.futures.Future()
            # A daemon: the end of this process waits for no cluster that is silent.
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
        for task, seat in self._seats.items():
            self._console.say(f"{task} is on node {seat.node}")
        nodes = {seat.node: seat for seat in reversed(self._seats.values())}
        self._model_dir.move(nodes, self._copies(folders))
        return cluster

    def start(self, run, environ):
        """Start a task; with a new actor if the last one is gone."""
        environ = {**environ, JOB_VARIABLE: self._id}
        if not self._job.resources_of(run.task).gpus:
            environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray leaves it as the node has it
        seat = self._seats[run.task]
        if self._notices.is_given and not seat.is_movable:
            seat.refuse(run, "a node of the job is about to go")
        else:
            seat.start(run, environ)

    def signal(self, run, number):
        """Send a signal to a run and its children; nothing if it has ended."""
        self._seats[run.task].signal(run, number)

    def close(self):
        """Kill what still runs, give back the resources, and leave the cluster."""
        self._closing.set()
        actors = [seat.actor for seat in self._seats.values() if seat.actor is not None]
        closing = [actor.close.remote() for actor in actors]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECS)
        for seat in self._seats.values():
            seat.vacate()
        deadline = time.monotonic() + _GONE_SECS
        for seat in self._seats.values():
            seat.join(max(0.0, deadline - time.monotonic()))
        if self._placing is not None:
            # Without its actors, nothing that it waits for takes long.
            left = max(0.0, deadline - time.monotonic())
            concurrent.futures.wait([self._placing], left)
        self._placement.release()
        ray_cluster.disconnect()

    def _fill(self, placing, addressed):
        try:
            placing.set_result(self._seating.fill(addressed))
        except BaseException as error:  # noqa: BLE001 - raised by its `result`
            placing.set_exception(error)

    def _admit(self, seat, node_id, node, folder):
        """Wait until a task may be started where Ray has put it; see `MovableSeat`."""
        may_start = self._seating.admit(seat, node_id)
        if may_start:
            self._model_dir.move_one(seat, node, self._copies({folder}))
        return may_start

    def _copies(self, folders):
        return folders if self._folder is None else ()

    def _hear(self, event):
        """Pass an event on, with what the cluster makes of it."""
        if isinstance(event, Ended) and self._has_to_move(event):
            event = dataclasses.replace(event, is_displaced=True)
        if isinstance(event, Reported):
            self._model_dir.hear(event, self._events.put)
        self._events.put(event)

    def _has_to_move(self, event):
        # However it ended: nobody is started again on a node that is about to go.
        is_movable = self._seats[event.run.task].is_movable
        return self._notices.is_given and not is_movable and event.status != 0

    def _takes_lines(self):
        return self._events.takes_lines()
