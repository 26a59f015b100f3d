"""The place of one task in a Ray cluster, with the actor that has it at present."""

import signal
import threading
import time

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from estimator_runtime.launch import ray_cluster
from estimator_runtime.launch.ray_task import TaskActor
from estimator_runtime.launch.task import Ended, Lost
from estimator_runtime.role import TaskType

# Until a killed task has ended; then its actor, which cannot be reached, is given up.
_KILL_SECS = 10.0
_RETRY_SECS = 1.0
# A task that fails is started again by the supervisor, never by Ray.
_Actor = ray.remote(max_restarts=0, concurrency_groups={"events": 1})(TaskActor)


class Seat:
    """Starts one task, again and again, and passes on what happens to it.

    Attributes:
        task: The task.
        actor: Who has the seat, or None.
        node: The address of its node, once the seat has been placed.
        node_id: The id of that.
        is_leaving: Whether its node is about to go.
        port: The port of the task there, or None.
    """

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
        self.actor = self._run = self._follower = None
        self.is_leaving = False
        self._options = {}
        self._lock = threading.Lock()

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
            actor = self.actor
        name = f"estimator_runtime {self.task}"
        self._follower = threading.Thread(
            target=self._follow, args=(actor,), name=name, daemon=True
        )
        self._follower.start()
        return actor

    def start(self, run, environ):
        """Start a run, at the address of the task."""
        if not self.is_movable and self.has_lost_node():
            cause = "cannot have its address again: its node is gone"
            self._hear(Ended(run=run, status=-1, cause=cause, is_displaced=True))
            return
        actor = self.fill()
        with self._lock:
            is_there = self.actor is actor
            self._run = run if is_there else None
        if not is_there:
            self._end(run, "lost its actor")
        elif self.is_movable:
            actor.start.remote(run, environ, None, None)
        else:
            actor.start.remote(run, environ, self.port, self.node_id)

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

    def vacate(self, timeout_secs):
        """Kill the actor, and what it has started; no end of a run is told of.

        Args:
            timeout_secs: How long to wait until Ray tells that it is gone.
        """
        with self._lock:
            actor, self.actor, self._run = self.actor, None, None
        if actor is not None:
            ray.kill(actor)
        if self._follower is not None:
            self._follower.join(timeout_secs)

    def has_lost_node(self):
        """Tell whether the node is gone on which the task has its address."""
        return self.node_id is not None and not ray_cluster.is_alive(self.node_id)

    @property
    def is_movable(self):
        """Whether it need not be where it was: nobody connects to an evaluator."""
        return self.task.type == TaskType.EVALUATOR

    def _follow(self, actor):
        """Pass on the events of an actor, until it is gone."""
        answers = 0
        while True:
            try:
                events = ray.get(actor.poll.remote(answers, self._takes_lines()))
            except ActorUnavailableError:
                time.sleep(_RETRY_SECS)  # until it answers, or Ray gives it up
                continue
            except Exception as error:  # noqa: BLE001 - nobody follows it any more
                self._lose(actor, error)
                return
            answers += 1
            for event in events:
                if isinstance(event, Lost):
                    ray.kill(actor)  # the next answer is that it is gone
                    continue
                if isinstance(event, Ended):
                    with self._lock:
                        self._run = None if self._run == event.run else self._run
                self._hear(event)

    def _lose(self, actor, error):
        with self._lock:
            if self.actor is not actor:
                return
            run, self.actor, self._run = self._run, None, None
        if not isinstance(error, RayActorError):
            ray.kill(actor)
        if run is None:
            return
        cause = "lost its node" if self.has_lost_node() else "lost its actor"
        if not isinstance(error, RayActorError):
            cause += f" ({error})"
        self._end(run, cause)

    def _end(self, run, cause):
        is_displaced = not self.is_movable and self.has_lost_node()
        status = -int(signal.SIGKILL)
        self._hear(
            Ended(run=run, status=status, cause=cause, is_displaced=is_displaced)
        )

    def _give_up(self, actor, run):
        with self._lock:
            is_there = self.actor is actor and self._run == run
        if is_there:
            ray.kill(actor)
