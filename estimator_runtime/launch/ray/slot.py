"""The place of one task in a Ray cluster, with the actor that has it at present."""

import signal
import threading
import time

import ray
from ray.exceptions import ActorUnavailableError, RayError

from estimator_runtime.launch import ray_cluster
from estimator_runtime.launch.ray_errors import brief
from estimator_runtime.launch.ray_task import LEASE_SECS, TaskActor
from estimator_runtime.launch.task import Ended, Lost

# Until a killed task has ended; then its actor, which cannot be reached, is given up.
_KILL_SECS = 10.0
_RETRY_SECS = 1.0
# For the kill at the end of a lease, and for clocks that do not run alike.
_LEASE_MARGIN_SECS = 5.0
# A task that fails is started again by the supervisor, never by Ray.
_Actor = ray.remote(
    max_restarts=0, concurrency_groups={"events": 1, "files": 1, "place": 1}
)(TaskActor)


class Seat:
    """Starts one task, again and again, and passes on what happens to it.

    Attributes:
        task: The task.
        actor: Who has the seat, or None.
        node: The address of its node, once the seat has been placed.
        node_id: The id of that; None while the seat is on no node.
        is_leaving: Whether its node is about to go.
        is_movable: Whether the task need not be where it was.
        port: The port of the task there, or None.
    """

    is_movable = False

    def __init__(self, task, job, folder, hear, takes_lines):
        """Know the task; nobody has the seat yet.

        Args:
            task: The `Task`.
            job: The `Job`.
            folder: Where it runs; None for where Ray has put its copy of a folder.
            hear: Called with each `task.Event`, by a thread of the actor's.
            takes_lines: Tells whether there is room for lines.
        """
        self._takes_lines = takes_lines
        self.task, self._job, self._folder, self._hear = task, job, folder, hear
        self.node = self.node_id = self.port = None
        self.actor = self._run = self._follower = self._starting = None
        self._heard_at = None
        self.is_leaving = False
        self._options = {}
        self._lock = threading.RLock()

    def fill(self, options=None):
        """Give the actor; a new one, if there is none.

        Args:
            options: Its options at Ray, from now on; None for those of the last.
        """
        self._options = options or self._options
        with self._lock:
            if self.actor is not None:
                return self.actor
            actor_class = _Actor.options(**self._options)
            self.actor = actor_class.remote(self._job, self._folder)
            actor, self._starting = self.actor, None
        name = f"estimator_runtime {self.task}"
        self._follower = threading.Thread(
            target=self._follow, args=(actor,), name=name, daemon=True
        )
        self._follower.start()
        return actor

    def settle(self, node_id, node):
        """Take note of the node that the actor is on: there the task is started."""
        with self._lock:
            self.node_id, self.node, self.is_leaving = node_id, node, False
            self._heard_at = time.monotonic()

    def start(self, run, environ):
        """Start a run, at the address of the task."""
        if self._is_known_lost():
            self.refuse(run, "its node is gone")
            return
        actor = self._actor_for(run)
        with self._lock:
            is_there = actor is not None and self.actor is actor
            if is_there:
                answer = actor.start.remote(run, environ, self.port, self.node_id)
                self._starting = answer

    def refuse(self, run, why):
        """Let a run end before it starts, as the task needs another address."""
        cause = f"cannot have its address again: {why}"
        self._hear(Ended(run=run, status=-1, cause=cause, is_displaced=True))

    def signal(self, run, number):
        """Send a signal to a run; an actor that does not answer is given up."""
        with self._lock:
            actor = self.actor if self._run == run else None
        if actor is None:
            return
        actor.signal.remote(run, int(number))
        if number == signal.SIGKILL:
            timer = threading.Timer(_KILL_SECS, self._give_up, (actor, run))
            timer.daemon = True
            timer.start()

    def evict(self):
        """Tell of the end of the run, which is about to be killed, if there is one.

        Returns:
            Whether there is.
        """
        with self._lock:
            run, self._run = self._run, None
        if run is not None:
            self._end(run, "had to leave its node", is_displaced=True)
        return run is not None

    def give_up_lost_start(self):
        """Let a run end that waits for an actor on a node that is gone.

        Of such an actor Ray says nothing until it has room for it on another node.
        """
        with self._lock:
            actor, starting = self.actor, self._starting
        if actor is None or starting is None:
            return
        if not ray.wait([starting], timeout=0)[0] and self._is_known_lost():
            self._lose(actor, RayError("it was to start there"))

    @property
    def has_run(self):
        """Whether a run is started, and has not ended."""
        return self._run is not None

    def vacate(self, is_closed=False):
        """Kill the actor, and what it has started; no end of a run is told of.

        Args:
            is_closed: Whether it has said itself that nothing runs any more.
        """
        with self._lock:
            actor, self.actor, self._run = self.actor, None, None
            self._heard_at = None if is_closed else self._heard_at
            self.node_id = None
        if actor is not None:
            ray.kill(actor)

    def join(self, timeout_secs):
        """Wait until Ray tells that the actor is gone."""
        if self._follower is not None:
            self._follower.join(timeout_secs)

    def lives_until(self):
        """Give when what was started here has ended, whether it can be reached or not.

        None if nothing was started.
        """
        if self._heard_at is None:
            return None
        return self._heard_at + LEASE_SECS + _LEASE_MARGIN_SECS

    def has_lost_node(self):
        """Tell whether the node is gone on which the task has its address."""
        return self.node_id is not None and not ray_cluster.is_alive(self.node_id)

    def _is_known_lost(self):
        """Tell the same where an error would keep the end of a run from being told."""
        return self.node_id is not None and ray_cluster.is_lost(self.node_id)

    def _actor_for(self, run):
        """Give the actor that is to start a run; None if it has ended with that."""
        actor = self.fill()
        with self._lock:
            is_there = self.actor is actor
            self._run = run if is_there else None
        if not is_there:
            self._end(run, "lost its actor")
        return actor if is_there else None

    def _take_place(self, actor, node_id, node, folder):
        """Do what is to be done once it is known where Ray has put an actor: nothing.

        Called by the thread that follows it, which it must not hold up.
        """

    def _follow(self, actor):
        """Pass on the events of an actor, until it is gone."""
        answers, here = 0, None
        while True:
            try:
                if here is None:
                    here, *place = ray.get(actor.where.remote())
                    self._take_place(actor, here, *place)
                events = ray.get(actor.poll.remote(answers, self._takes_lines()))
            except ActorUnavailableError:
                time.sleep(_RETRY_SECS)  # until it answers, or Ray gives it up
                continue
            except Exception as error:  # noqa: BLE001 - nobody follows it any more
                self._lose(actor, error)
                return
            answers += 1
            with self._lock:
                # One that Ray has moved says nothing of what runs where it was to be.
                if self.actor is actor and here == self.node_id:
                    self._heard_at = time.monotonic()
            for event in events:
                if isinstance(event, Lost):
                    ray.kill(actor)  # the next answer is that it is gone
                    continue
                if isinstance(event, Ended):
                    with self._lock:
                        self._run = None if self._run == event.run else self._run
                self._hear(event)
            failure = self._failure_to_start(actor)
            if failure is not None:
                self._lose(actor, failure)
                return

    def _failure_to_start(self, actor):
        """Give what has kept the actor from hearing that it is to start, or None."""
        with self._lock:
            starting = self._starting if self.actor is actor else None
        if starting is None or not ray.wait([starting], timeout=0)[0]:
            return None
        self._starting = None
        try:
            ray.get(starting)
        except Exception as error:  # noqa: BLE001 - told of as the end of the run
            return error
        return None

    def _lose(self, actor, error):
        with self._lock:
            if self.actor is not actor:
                return
            run, self.actor, self._run = self._run, None, None
        try:
            ray.kill(actor)  # it may have become unavailable only
        finally:
            if run is not None:
                lost = "lost its node" if self._is_known_lost() else "lost its actor"
                self._end(run, f"{lost} ({brief(error)})")

    def _end(self, run, cause, is_displaced=None):
        if is_displaced is None:
            is_displaced = not self.is_movable and self._is_known_lost()
        status = -int(signal.SIGKILL)
        end = Ended(run=run, status=status, cause=cause, is_displaced=is_displaced)
        self._hear(end)

    def _give_up(self, actor, run):
        with self._lock:
            is_there = self.actor is actor and self._run == run
        if is_there:
            ray.kill(actor)
