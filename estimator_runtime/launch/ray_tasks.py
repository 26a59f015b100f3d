"""Tasks as children of actors on the nodes of a Ray cluster; see `task.Tasks`."""

import concurrent.futures
import dataclasses
import os
import signal
import threading
import time
import uuid
from collections import defaultdict

import ray
from ray.exceptions import RayActorError, RayError

from estimator_runtime.cluster import Cluster
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch import ray_cluster, shared_folder
from estimator_runtime.launch.ray_seat import Seat
from estimator_runtime.launch.task import Ended, Leaving, Refused, Reported
from estimator_runtime.reporting import JOB_VARIABLE

# For all actors to be made, each a new Python on its node.
_ACTORS_SECS = 120.0
_CLOSE_SECS = 20.0
_RETRY_SECS = 1.0
_NOTICE_SECS = 2.0
# Exit statuses of a training that was told to stop, and has saved.
_STOPPED = (143, -int(signal.SIGTERM))


class RayTasks:
    """Runs the tasks of one job in a Ray cluster."""

    def __init__(self, job, placement, folder, timeout_secs, console):
        """Know the job and where its tasks are to run; start nothing.

        Args:
            job: The `Job`.
            placement: Its `Placement`, reserved.
            folder: Where tasks run; None for where Ray has put its copy of a folder.
            timeout_secs: How long to wait for room in the cluster after a loss.
            console: Where to say what has been placed where.
        """
        self._job, self._placement, self._folder = job, placement, folder
        self._timeout_secs, self._console = timeout_secs, console
        self._id = uuid.uuid4().hex
        self._seats = {
            task: Seat(task, job, folder, self._hear, self._takes_lines)
            for task in job.tasks
        }
        self._placing = None
        self._nodes = {}  # address of each to a seat there
        self._copies = set()  # of the working directory
        self._has_checked = False  # whether the model directory is shared
        self._closing = threading.Event()

    def open(self, events, is_cancelled):
        """Let events go to this queue; returns at once."""
        self._events = events
        name = "estimator_runtime notices"
        threading.Thread(target=self._watch_nodes, name=name, daemon=True).start()

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
        cluster = placing.result()
        for task, seat in self._seats.items():
            self._console.say(f"{task} is on node {seat.node}")
        return cluster

    def start(self, run, environ):
        """Start a task; with a new actor if the last one is gone."""
        environ = {**environ, JOB_VARIABLE: self._id}
        if not self._job.resources_of(run.task).gpus:
            environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray leaves it as the node has it
        self._seats[run.task].start(run, environ)

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
            seat.vacate(_CLOSE_SECS)
        if self._placing is not None:
            # Without its actors, nothing that it waits for takes long.
            concurrent.futures.wait([self._placing], _CLOSE_SECS)
        self._placement.release()
        ray_cluster.disconnect()

    def _fill(self, placing, addressed):
        try:
            placing.set_result(self._place(addressed))
        except BaseException as error:  # noqa: BLE001 - raised by its `result`
            placing.set_exception(error)

    def _place(self, addressed):
        deadline = time.monotonic() + 2 * self._timeout_secs + _ACTORS_SECS
        while True:
            self._await_departures()
            if any(seat.has_lost_node() for seat in self._seats.values()):
                self._placement.reserve(self._timeout_secs, self._closing.is_set)
                nodes = self._placement.nodes()
                is_over = self._closing.is_set() or time.monotonic() > deadline
                if not is_over and not all(map(ray_cluster.is_alive, nodes)):
                    time.sleep(_RETRY_SECS)  # until Ray has moved what was reserved
                    continue
                ray_cluster.check_nodes(nodes, self._folder)
            try:
                return self._take_seats(addressed)
            except RayActorError as error:
                is_over = self._closing.is_set() or time.monotonic() > deadline
                if is_over or error.actor_init_failed:
                    raise LaunchError(f"a task cannot be placed: {error}") from error
                time.sleep(_RETRY_SECS)  # until Ray knows what has become of the node
            except RayError as error:
                raise LaunchError(f"a task cannot be placed: {error}") from error

    def _take_seats(self, addressed):
        """Let every seat have an actor, and give the addresses of the tasks."""
        actors = {
            task: seat.fill(self._placement.options(index))
            for index, (task, seat) in enumerate(self._seats.items())
        }
        places = {task: actor.where.remote() for task, actor in actors.items()}
        ports = {task: actors[task].take_port.remote() for task in addressed}
        jobs, self._nodes = defaultdict(list), {}
        for task, place in places.items():
            seat = self._seats[task]
            seat.node_id, seat.node, folder = ray.get(place, timeout=_ACTORS_SECS)
            if self._folder is None:
                self._copies.add(folder)
            seat.is_leaving = False
            self._nodes.setdefault(seat.node, seat)
            if task in ports:
                seat.port = ray.get(ports[task], timeout=_ACTORS_SECS)
                host = f"[{seat.node}]" if ":" in seat.node else seat.node
                jobs[task.type].append(f"{host}:{seat.port}")
        self._has_checked = False
        return Cluster(jobs)

    # Nodes that give notice.

    def _watch_nodes(self):
        while not self._closing.wait(_NOTICE_SECS):
            leaving = ray_cluster.leaving()
            seats = [
                seat
                for seat in self._seats.values()
                if seat.node_id in leaving
                and not seat.is_movable
                and not seat.is_leaving
            ]
            for seat in seats:
                seat.is_leaving = True
                self._console.say(
                    f"node {seat.node} of {seat.task} is about to go: stopping the job "
                    "with a checkpoint, to place it anew"
                )
            if seats:
                self._events.put(Leaving())

    def _has_to_move(self, event):
        is_told = any(seat.is_leaving for seat in self._seats.values())
        is_movable = self._seats[event.run.task].is_movable
        return is_told and not is_movable and event.status in _STOPPED

    def _await_departures(self):
        """Wait until nodes are gone that are about to go: then others get their place.

        Raises:
            LaunchError: If one stays.
        """
        going = [seat for seat in self._seats.values() if seat.is_leaving]
        for seat in going:
            seat.vacate(_CLOSE_SECS)
        deadline = time.monotonic() + self._timeout_secs
        for seat in going:
            while not seat.has_lost_node() and not self._closing.is_set():
                if time.monotonic() > deadline:
                    raise LaunchError(
                        f"node {seat.node} was about to go, and is still there after "
                        f"{self._timeout_secs:g} s; start the job again"
                    )
                time.sleep(_RETRY_SECS)

    # The model directory.

    def _hear(self, event):
        if isinstance(event, Ended) and self._has_to_move(event):
            event = dataclasses.replace(event, is_displaced=True)
        if isinstance(event, Reported) and "model_dir" in event.report:
            path = event.report["model_dir"]
            if "://" not in path:  # those are read by TensorFlow, the same for all
                self._check_model_dir(path)
        self._events.put(event)

    def _takes_lines(self):
        return self._events.takes_lines()

    def _check_model_dir(self, path):
        for copy in self._copies:
            folder = os.path.normpath(os.path.join(copy, path))
            if os.path.commonpath((folder, copy)) == copy:
                self._refuse(
                    f"model_dir {path!r} is in the copy of --working-dir that a node "
                    "has; give the path of a folder that all nodes share"
                )
                return
        if not self._has_checked:
            self._has_checked = True
            check = threading.Thread(
                target=self._check_shared, args=(path,), name="estimator_runtime check"
            )
            check.daemon = True
            check.start()

    def _check_shared(self, path):
        actors = {node: seat.actor for node, seat in self._nodes.items()}
        if None not in actors.values():
            problem = shared_folder.why_not_shared(path, actors)
            if problem is not None:
                self._refuse(problem)

    def _refuse(self, problem):
        if not self._closing.is_set():
            self._events.put(Refused(reason=problem))
