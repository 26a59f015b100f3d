"""The model directory of a job in a Ray cluster: the same one for all of its nodes."""

import os
import threading

from ray.exceptions import RayError

from estimator_runtime.launch import shared_folder
from estimator_runtime.launch.ray_errors import brief
from estimator_runtime.launch.task import Refused

_RETRY_SECS = 5.0


class ModelDir:
    """Sees that what the tasks save can be read wherever they are started again.

    It hears which folder that is when they report it: that of an Estimator, or, before
    one has been named, that to which a session of the leader saves.
    """

    def __init__(self, leader, console, is_closing):
        """Know the task that leads, and nothing of its folder yet.

        Args:
            leader: The `Task`.
            console: Where to say that a node does not answer.
            is_closing: A `threading.Event`, set at the end of the job.
        """
        self._leader, self._console, self._is_closing = leader, console, is_closing
        self._nodes = {}  # address of each to a seat there
        self._copies: frozenset[str] = frozenset()  # of the working directory
        self._is_named = False
        self._asked: set[str] = set()  # folders that those nodes are asked about
        self._lock = threading.Lock()

    def move(self, nodes, copies):
        """Take note of where the tasks are from now on.

        Args:
            nodes: Address of each node to a `Seat` there.
            copies: The folders that Ray has copied there, and in which tasks run.
        """
        with self._lock:
            self._move(nodes, copies)

    def move_one(self, seat, node, copies):
        """Take note of where one task is from now on; the others are where they were.

        Args:
            seat: Its `Seat`.
            node: The address of its node.
            copies: As for `move`.
        """
        with self._lock:
            others = [(at, it) for at, it in self._nodes.items() if it is not seat]
            nodes = {node: seat, **dict(others)}
            if nodes.keys() != self._nodes.keys():
                self._move(nodes, self._copies.union(copies))

    def _move(self, nodes, copies):
        self._nodes, self._copies, self._asked = nodes, frozenset(copies), set()

    def hear(self, event, refuse):
        """Look at the folder that a task reports, if it does.

        Args:
            event: A `task.Reported`.
            refuse: Called with a `task.Refused`, also later by a thread, if the folder
                will not do.
        """
        path = event.report.get("model_dir")
        if path is not None:
            self._is_named = True
        elif event.run.task == self._leader and not self._is_named:
            path = event.report.get("checkpoint_dir")
        if path is None or "://" in path:  # TensorFlow reads those, the same for all
            return
        if any(_is_in(path, copy) for copy in self._copies):
            reason = (
                f"model_dir {path!r} is in the copy of --working-dir that a node has; "
                "give the path of a folder that all nodes share"
            )
            refuse(Refused(reason=reason))
            return
        with self._lock:
            nodes, is_asked = self._nodes, path in self._asked
            self._asked.add(path)
        if not is_asked:
            threading.Thread(
                target=self._ask,
                args=(path, nodes, refuse),
                name="estimator_runtime check",
                daemon=True,
            ).start()

    def _ask(self, path, nodes, refuse):
        said = None
        while nodes is self._nodes and not self._is_closing.is_set():
            try:
                problem = _problem(path, nodes)
            except RayError as error:
                # Whoever is lost is started again, here or, by `move`, elsewhere.
                if brief(error) != said and not self._is_closing.is_set():
                    said = brief(error)
                    self._console.say(
                        f"whether all nodes see model_dir {path!r} is not known yet "
                        f"({said}); asking again"
                    )
                self._is_closing.wait(_RETRY_SECS)
                continue
            if problem is not None and not self._is_closing.is_set():
                refuse(Refused(reason=problem))
            return


def _is_in(path, folder):
    whole = os.path.normpath(os.path.join(folder, path))
    return os.path.commonpath((whole, folder)) == folder


def _problem(path, nodes):
    actors = {node: seat.actor for node, seat in nodes.items()}
    for node, actor in actors.items():
        if actor is None:
            raise RayError(f"the actor on node {node} is gone")
    return shared_folder.why_not_shared(path, actors)
