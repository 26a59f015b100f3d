"""Where the tasks of a job sit in a Ray cluster: found at first, and after a loss."""

import time
from collections import defaultdict

import ray
from ray.exceptions import RayActorError, RayError

from estimator_runtime.cluster import Cluster
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch import ray_cluster
from estimator_runtime.launch.ray_errors import brief

# For all actors to be made, each a new Python on its node.
_ACTORS_SECS = 120.0
_CLOSE_SECS = 20.0
_RETRY_SECS = 1.0
_SAID_AFTER_SECS = 5.0


class _NotYetError(LaunchError):
    """A node or an actor went meanwhile: it may do in a moment."""


class Seating:
    """Gives the tasks actors, on nodes that are there and stay.

    Where a node is lost, Ray reserves anew what was there, and the other actors stay.
    Where one has given notice, all is given back and reserved again: a node ends when
    nothing on it is in use, and Ray reserves nothing there any more.
    """

    def __init__(
        self, seats, placement, checked, folder, timeout_secs, console, is_closing
    ):
        """Know the seats, which are all empty.

        Args:
            seats: The `Seat` of every task, in the order of the job's.
            placement: The `Placement` of the job, reserved.
            checked: The ids of the nodes on which tasks can run, as far as known.
            folder: Where tasks run; None for where Ray has put its copy of a folder.
            timeout_secs: How long to wait for room in the cluster after a loss.
            console: Where to say what is waited for.
            is_closing: A `threading.Event`, set at the end of the job.
        """
        self._seats, self._placement, self._folder = seats, placement, folder
        self._timeout_secs, self._console = timeout_secs, console
        self._is_closing = is_closing
        self._checked = set(checked)
        # Seat to the id, and to the address, of the node that is reserved for it.
        self._reserved, self._where = {}, {}

    def fill(self, addressed):
        """Let every seat have an actor.

        Args:
            addressed: The tasks that need an address.

        Returns:
            Their addresses as a `Cluster`, and the folders in which tasks run.

        Raises:
            LaunchError: If there is no room in time, or a node will not do.
        """
        started, said = time.monotonic(), None
        while True:
            try:
                self._reserve()
                return self._take(addressed)
            except (_NotYetError, ray_cluster.NodeSilentError) as error:
                waited = time.monotonic() - started
                is_over = waited > 2 * self._timeout_secs + _ACTORS_SECS
                if is_over or self._is_closing.is_set():
                    raise
                if waited > _SAID_AFTER_SECS and str(error) != said:
                    said = str(error)
                    self._console.say(f"placing the tasks again: {error}")
            except RayError as error:
                reason = f"the tasks cannot be placed: {brief(error)}"
                raise LaunchError(reason) from error
            self._is_closing.wait(_RETRY_SECS)

    def admit(self, seat, node_id):
        """Wait until a task may be started on a node that Ray has chosen meanwhile.

        Args:
            seat: Its `Seat`, where its last node is still noted.
            node_id: The id of the node.

        Returns:
            Whether it may; not on a node that is gone, nor at the end of the job.

        Raises:
            LaunchError: If the node will not do, or is silent for as long as a job may
                take to be placed.
        """
        self._wait_for_ends([seat] if seat.has_lost_node() else [])
        started = time.monotonic()
        while not self._is_closing.is_set() and ray_cluster.is_alive(node_id):
            try:
                self._check({node_id})
                return True
            except ray_cluster.NodeSilentError:
                if time.monotonic() - started > self._timeout_secs:
                    raise
                self._is_closing.wait(_RETRY_SECS)
        return False

    def _reserve(self):
        """See that there is room for all tasks, on nodes that are there and stay."""
        if any(seat.is_leaving for seat in self._seats):
            self._give_back()
        self._wait_for_ends([seat for seat in self._seats if seat.has_lost_node()])
        self._placement.reserve(self._timeout_secs, self._is_closing.is_set)
        nodes = self._placement.nodes()
        known = ray_cluster.addresses()
        where = [known.get(node, node) for node in nodes]
        self._reserved = dict(zip(self._seats, nodes, strict=True))
        self._where = dict(zip(self._seats, where, strict=True))
        for node, address in zip(nodes, where, strict=True):
            if not ray_cluster.is_alive(node):
                raise _NotYetError(f"Ray has yet to move what was on node {address}")
        if ray_cluster.leaving().intersection(nodes):
            self._give_back()
            raise _NotYetError("one of the nodes is about to go")
        self._check(set(nodes))

    def _check(self, nodes):
        new = nodes - self._checked
        if new:
            ray_cluster.check_nodes(new, self._folder)
            self._checked |= new

    def _give_back(self):
        """End all that runs, and free what is reserved."""
        # Before anybody sees it end: it would be started again where it is.
        for seat in self._seats:
            if seat.evict():
                self._console.say(
                    f"{seat.task} has to leave node {seat.node}: all are placed anew"
                )
        closing = {
            seat: actor.close.remote() for seat in self._seats if (actor := seat.actor)
        }
        if closing:
            answers = list(closing.values())
            ray.wait(answers, num_returns=len(answers), timeout=_CLOSE_SECS)
        unsure = [seat for seat, answer in closing.items() if not _is_good(answer)]
        unsure += [
            seat for seat in self._seats if seat not in closing and seat.has_lost_node()
        ]
        for seat in self._seats:
            seat.vacate(is_closed=seat not in unsure)
            seat.is_leaving = False
        self._placement.release()
        self._wait_for_ends(unsure)

    def _wait_for_ends(self, seats):
        """Wait until nothing runs that was started on nodes which do not answer."""
        ends = [(seat.lives_until(), seat.node) for seat in seats]
        ends = [(end, node) for end, node in ends if end is not None]
        left = max(ends)[0] - time.monotonic() if ends else 0.0
        if left > 0:
            nodes = ", ".join(sorted({node for _, node in ends}))
            self._console.say(
                f"waiting {left:.0f} s until what may still run on node {nodes} has "
                "ended by itself"
            )
            self._is_closing.wait(left)

    def _take(self, addressed):
        actors = {
            seat: seat.fill(self._placement.options(index))
            for index, seat in enumerate(self._seats)
        }
        places = {seat: actor.where.remote() for seat, actor in actors.items()}
        ports = {
            seat: actor.take_port.remote()
            for seat, actor in actors.items()
            if seat.task in addressed
        }
        self._wait_for_actors(places)
        jobs, folders = defaultdict(list), set()
        for seat, place in places.items():
            node_id, node, folder = self._answer(seat, place)
            if node_id != self._reserved[seat]:
                raise _NotYetError(f"Ray has moved {seat.task} to node {node}")
            seat.settle(node_id, node)
            folders.add(folder)
            if seat in ports:
                seat.port = self._answer(seat, ports[seat])
                host = f"[{seat.node}]" if ":" in seat.node else seat.node
                jobs[seat.task.type].append(f"{host}:{seat.port}")
        return Cluster(jobs), folders

    def _wait_for_actors(self, answers):
        """Wait until each seat's first answer is there, while the nodes are."""
        started, is_said = time.monotonic(), False
        waiting = answers
        while True:
            done, _ = ray.wait(
                list(waiting.values()), num_returns=len(waiting), timeout=_RETRY_SECS
            )
            waiting = {seat: it for seat, it in waiting.items() if it not in done}
            if not waiting:
                return
            waited = time.monotonic() - started
            who = ", ".join(
                f"{seat.task} on node {self._where[seat]}" for seat in waiting
            )
            if self._is_closing.is_set():
                raise LaunchError(f"the job ended before the start of {who}")
            # Ray may have thought it there: it learns of a loss after up to 65 s.
            for seat in {self._reserved[seat]: seat for seat in waiting}.values():
                if not ray_cluster.is_alive(self._reserved[seat]):
                    raise _NotYetError(f"node {self._where[seat]} is gone")
            if waited > _ACTORS_SECS:
                raise LaunchError(
                    f"no actor was started for {who} within {_ACTORS_SECS:g} s; "
                    "Ray's logs there may say why"
                )
            if waited > _SAID_AFTER_SECS and not is_said:
                is_said = True
                self._console.say(f"waiting for the actor of {who}")

    def _answer(self, seat, answer):
        who = f"{seat.task} on node {self._where[seat]}"
        try:
            return ray.get(answer, timeout=_ACTORS_SECS)
        except RayActorError as error:
            if error.actor_init_failed:
                reason = f"{who} cannot be placed: {brief(error)}"
                raise LaunchError(reason) from error
            raise _NotYetError(f"{who} has lost its actor: {brief(error)}") from error
        except RayError as error:
            raise LaunchError(f"{who} cannot be placed: {brief(error)}") from error


def _is_good(answer):
    """Tell whether an actor has done what it was asked."""
    try:
        ray.get(answer, timeout=0)
    except RayError:
        return False
    return True
