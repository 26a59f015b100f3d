"""The check that all nodes of a Ray cluster share the model directory of a job."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError

from estimator_runtime.config.paths import is_local
from estimator_runtime.launch.task import Refused, Reported, Task

if TYPE_CHECKING:
    from estimator_runtime.launch.backends.ray.cluster import RayCluster


class ModelDir:
    """Checks that tasks can read what they have saved wherever they are restarted.

    It learns the folder from the reports of the tasks: the model directory of an
    Estimator or, until one has been reported, the folder to which a session of the
    leader saves. This machine writes a file there, which every node has to see.

    Args:
        leader: The chief, or the worker that acts as chief.
        actors: Returns the `TaskActor` of a task on each node, by the node's address.
        cluster: The cluster that runs them.
        refuse: Called, from any thread, if a folder is not suitable.

    Attributes:
        copies: The folders that Ray has copied to the nodes, in which tasks run.
    """

    def __init__(
        self,
        leader: Task,
        actors: Callable[[], Mapping[str, Any]],
        cluster: RayCluster,
        refuse: Callable[[Refused], None],
    ) -> None:
        self._leader, self._actors, self._cluster = leader, actors, cluster
        self._refuse = refuse
        self.copies: set[str] = set()
        self._is_named = False
        # The folders that have been checked, each with the node that sees it.
        self._checked: set[tuple[str, str]] = set()
        self._good: set[str] = set()  # the folders that all nodes have seen once

    def hear(self, event: Reported) -> None:
        """Check the folder in a task's report, if there is one, in a thread."""
        path = event.report.get("model_dir")
        if path is not None:
            self._is_named = True
        elif event.run.task == self._leader and not self._is_named:
            path = event.report.get("checkpoint_dir")
        if path is None or not is_local(
            path
        ):  # TensorFlow reads it, the same on all nodes
            return
        if any(_is_in(path, copy) for copy in self.copies):
            reason = (
                f"model_dir {path!r} is in the copy of --working-dir that a node has; "
                "give the path of a folder that all nodes share"
            )
            self._refuse(Refused(reason=reason))
            return
        actors = {
            node: actor
            for node, actor in self._actors().items()
            if (path, node) not in self._checked
        }
        self._checked.update((path, node) for node in actors)
        if actors:
            threading.Thread(
                target=self._ask,
                args=(path, actors),
                name="estimator_runtime check",
                daemon=True,
            ).start()

    def _ask(self, path: str, actors: Mapping[str, Any]) -> None:
        """Write a file to a folder, and refuse the folder if a node does not see it."""
        token = os.path.join(path, f".estimator-runtime-{uuid.uuid4().hex}")
        problem = None
        try:
            os.makedirs(path, exist_ok=True)
            open(token, "x").close()
            answers = {node: actor.sees.remote(token) for node, actor in actors.items()}
            secs = self._cluster.waits.actors_secs
            for node, answer in answers.items():
                if not self._cluster.get(answer, timeout=secs):
                    problem = (
                        f"node {node} does not see what the machine of the launcher "
                        f"writes to model_dir {path!r}; use a folder that all of them "
                        "share"
                    )
                    break
        except RayError:  # the next run of the task on that node reports the folder
            self._checked.difference_update((path, node) for node in actors)
        except OSError as error:
            problem = (
                f"the machine of the launcher cannot write to model_dir {path!r}: "
                f"{error.strerror}; use a folder that it shares with all nodes"
            )
        else:
            if problem is None:
                self._good.add(path)
        finally:
            with contextlib.suppress(OSError):
                os.remove(token)
        if problem is not None:
            self._refuse(Refused(reason=problem, is_late=path in self._good))


def _is_in(path: str, folder: str) -> bool:
    whole = os.path.normpath(os.path.join(folder, path))
    return os.path.commonpath((whole, folder)) == folder
