"""The check that all nodes of a Ray cluster share the model directory of a job."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError, RayTaskError

from estimator_runtime.launch.ray.errors import brief
from estimator_runtime.launch.task import Refused, Reported, Task
from estimator_runtime.launch.terminal.console import Console

if TYPE_CHECKING:
    from estimator_runtime.launch.ray.cluster import RayCluster, RayWaits
    from estimator_runtime.launch.ray.slot import Slot

_POLL_SECS = 0.5


class ModelDir:
    """Checks that tasks can read what they have saved wherever they are restarted.

    It learns the folder from the reports of the tasks: the model directory of an
    Estimator or, until one has been reported, the folder to which a session of the
    leader saves.

    Args:
        leader: The chief, or the worker that acts as chief.
        console: Where to report that a node does not answer.
        is_closing: An event that is set at the end of the job.
        cluster: The cluster that runs the tasks.
        waits: How long to wait for it.
    """

    def __init__(
        self,
        leader: Task,
        console: Console,
        is_closing: threading.Event,
        cluster: RayCluster,
        waits: RayWaits,
    ) -> None:
        self._cluster, self._waits = cluster, waits
        self._leader, self._console, self._is_closing = leader, console, is_closing
        self._nodes: Mapping[str, Slot] = {}  # a slot on each node, by its address
        self._copies: frozenset[str] = frozenset()  # of the working directory, on nodes
        self._is_named = False
        self._asked: set[str] = set()  # the folders checked on these nodes
        self._lock = threading.RLock()

    def move(self, nodes: Mapping[str, Slot], copies: Iterable[str]) -> None:
        """Record where the tasks are from now on.

        Args:
            nodes: A slot on each node, by the address of the node.
            copies: The folders that Ray has copied to the nodes, in which tasks run.
        """
        with self._lock:
            self._nodes, self._copies, self._asked = nodes, frozenset(copies), set()

    def move_one(self, slot: Slot, node: str, copies: Iterable[str]) -> None:
        """Record where one task is from now on; the others stay where they were."""
        with self._lock:
            others = {at: it for at, it in self._nodes.items() if it is not slot}
            nodes = {node: slot, **others}
            if nodes.keys() != self._nodes.keys():
                self.move(nodes, self._copies.union(copies))

    def hear(self, event: Reported, refuse: Callable[[Refused], None]) -> None:
        """Check the folder in a task's report, if there is one.

        A thread calls `refuse`, now or later, if the folder is not suitable.
        """
        path = event.report.get("model_dir")
        if path is not None:
            self._is_named = True
        elif event.run.task == self._leader and not self._is_named:
            path = event.report.get("checkpoint_dir")
        if path is None or "://" in path:  # TensorFlow reads it, the same on all nodes
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

    def _ask(
        self, path: str, nodes: Mapping[str, Slot], refuse: Callable[[Refused], None]
    ) -> None:
        """Check a folder until all nodes have answered, or the tasks have moved."""
        reported = None
        while nodes is self._nodes and not self._is_closing.is_set():
            try:
                problem = self._problem(path, nodes)
            except RayError as error:
                # A lost actor is restarted: on its node or, after `move`, elsewhere.
                if brief(error) != reported and not self._is_closing.is_set():
                    reported = brief(error)
                    self._console.say(
                        f"whether all nodes see model_dir {path!r} is not known yet "
                        f"({reported}); asking again"
                    )
                self._is_closing.wait(self._waits.ask_again_secs)
                continue
            if problem is not None and not self._is_closing.is_set():
                refuse(Refused(reason=problem))
            return

    def _problem(self, path: str, nodes: Mapping[str, Slot]) -> str | None:
        """Return why the nodes do not share a folder; see `why_not_shared`."""
        actors = {node: slot.actor for node, slot in nodes.items()}
        for node, actor in actors.items():
            if actor is None:
                raise RayError(f"the actor on node {node} is gone")
        return why_not_shared(path, actors, self._cluster, self._waits)


def _is_in(path: str, folder: str) -> bool:
    whole = os.path.normpath(os.path.join(folder, path))
    return os.path.commonpath((whole, folder)) == folder


def why_not_shared(
    path: str, actors: Mapping[str, Any], cluster: RayCluster, waits: RayWaits
) -> str | None:
    """Return why the nodes and this machine do not share a folder, or None.

    Every node writes a file, and this machine looks for all of them: nodes that share a
    folder with this machine share it with each other.

    Args:
        path: The folder.
        actors: The handle of a `TaskActor` on each node, by the address of the node.
        cluster: The cluster that the actors are in.
        waits: How long to wait for the answers, and until this machine sees the files.

    Raises:
        RayError: If the result is unknown, because an actor is gone or does not answer.
    """
    tokens = {
        node: os.path.join(path, f".estimator-runtime-{uuid.uuid4().hex}")
        for node in actors
    }
    try:
        writing = {
            node: actor.write_token.remote(tokens[node])
            for node, actor in actors.items()
        }
        for node, written in writing.items():
            problem = cluster.get(written, timeout=waits.answer_secs)
            if problem is not None:
                return f"node {node} cannot write to model_dir {path!r}: {problem}"
        deadline = time.monotonic() + waits.seen_secs
        for node, token in tokens.items():
            while not os.path.isfile(token):
                if time.monotonic() > deadline:
                    return (
                        f"the machine of the launcher does not see what node {node} "
                        f"writes to model_dir {path!r}; use a folder that all of them "
                        "share"
                    )
                time.sleep(_POLL_SECS)
        return None
    except RayTaskError as error:
        return f"model_dir {path!r} cannot be checked: {brief(error)}"
    finally:
        for token in tokens.values():  # the actor that wrote it may be gone
            with contextlib.suppress(OSError):
                os.remove(token)
        for node, actor in actors.items():
            actor.remove_token.remote(tokens[node])
