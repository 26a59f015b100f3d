"""The place in a Ray cluster of a task that may be moved, as nobody connects to it."""

import threading

import ray

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.ray_seat import Seat
from estimator_runtime.launch.task import Ended, Refused


class MovableSeat(Seat):
    """The `Seat` of an evaluator: its next actor may be on another node.

    On which is known only once it is there; it may be one that nobody has looked at.
    What the actor is to start waits for that.
    """

    is_movable = True

    def __init__(self, task, job, folder, hear, takes_lines, admit):
        """Know the task; nobody has the seat yet.

        Args:
            task: As for `Seat`, like all up to `takes_lines`.
            job: The `Job`.
            folder: Where it runs.
            hear: Called with each event.
            takes_lines: Tells whether there is room for lines.
            admit: Called by a thread with this seat, and the id, the address and the
                folder of the node on which Ray has put its actor: waits until the task
                may be started there, and tells whether it may; or raises `LaunchError`.
        """
        super().__init__(task, job, folder, hear, takes_lines)
        self._admit = admit
        self._admitted = None  # the actor that may start the task where it is
        self._planned = None  # the run, and its variables, that it is to start then

    def start(self, run, environ):
        """Start a run where Ray puts its actor, once that will do."""
        actor = self._actor_for(run)
        with self._lock:
            if actor is not None and self.actor is actor:
                self._planned = (run, environ)
                self._start_planned(actor)

    def signal(self, run, number):
        """Send a signal to a run; what is only planned ends by any."""
        with self._lock:
            planned, _ = self._planned or (None, None)
            actor = self.actor if self._run == run == planned else None
            if actor is not None:
                self.actor = self._run = self._planned = None
        if actor is None:
            super().signal(run, number)
            return
        ray.kill(actor)
        self._hear(Ended(run=run, status=-int(number)))

    def give_up_lost_start(self):
        """Do nothing: Ray moves the actor, and it is heard of where it is then."""

    def _take_place(self, actor, node_id, node, folder):
        threading.Thread(
            target=self._move,
            args=(actor, node_id, node, folder),
            name=f"estimator_runtime {self.task} moves",
            daemon=True,
        ).start()

    def _move(self, actor, node_id, node, folder):
        """Start what is planned where Ray has put its actor, once that will do."""
        try:
            may_start = self._admit(self, node_id, node, folder)
        except LaunchError as error:
            if self.actor is actor:
                self._hear(Refused(reason=str(error)))
            return
        except Exception as error:  # noqa: BLE001 - told of as the end of the run
            self._lose(actor, error)
            return
        with self._lock:
            if may_start and self.actor is actor:
                self._admitted = actor
                self.settle(node_id, node)
                self._start_planned(actor)

    def _start_planned(self, actor):
        with self._lock:
            is_its_turn = self._admitted is actor and self.actor is actor
            if not is_its_turn or self._planned is None:
                return
            (run, environ), self._planned = self._planned, None
            if self._run == run:  # else it has ended meanwhile
                self._starting = actor.start.remote(run, environ, None, None)
