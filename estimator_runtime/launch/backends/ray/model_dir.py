"""The check that a node of a Ray cluster shares the model directory of a job."""

import contextlib
import os
import threading
import uuid
from collections.abc import Callable

from ray.exceptions import RayError

from estimator_runtime.config.paths import is_local
from estimator_runtime.launch.backends.ray.slot import Slot
from estimator_runtime.launch.task import Event, Refused, Reported, Task

_ANSWER_SECS = 60.0


class ModelDirCheck:
    """Checks that a task can read what it has saved wherever it is restarted.

    It learns the folder from the reports of the tasks: the model directory of an
    Estimator or, until one has been reported, the folder to which a session of the
    leader saves. This machine writes a file there, which the node of the task has to
    see.

    Args:
        leader: The chief, or the worker that acts as chief.
        hear: Receives an event, from any thread, if the folder is not suitable.
    """

    def __init__(self, leader: Task, hear: Callable[[Event], None]) -> None:
        self._leader, self._hear = leader, hear
        self._is_named = False
        self._checked: set[tuple[str | None, str]] = set()  # the node and the folder

    def hear(self, event: Reported, slot: Slot) -> None:
        """Check the folder that a slot's task reports, if it is new, in a thread."""
        path = event.report.get("model_dir")
        if path is not None:
            self._is_named = True
        elif event.run.task == self._leader and not self._is_named:
            path = event.report.get("checkpoint_dir")
        # TensorFlow reads remote storage, the same on all nodes.
        if path is None or not is_local(path):
            return
        if (slot.node_id, path) not in self._checked:
            self._checked.add((slot.node_id, path))
            threading.Thread(
                target=self._check,
                args=(slot, path, event.run.attempt > 0),
                name="estimator_runtime check",
                daemon=True,
            ).start()

    def _check(self, slot: Slot, path: str, is_late: bool) -> None:
        token = os.path.join(path, f".estimator-runtime-{uuid.uuid4().hex}")
        try:
            os.makedirs(path, exist_ok=True)
            open(token, "x").close()
            problem = slot.ask("problem_with", token, timeout_secs=_ANSWER_SECS)
        except RayError:  # the task's next run reports the folder again
            self._checked.discard((slot.node_id, path))
            return
        except OSError as error:
            problem = (
                f"the machine of the launcher cannot write to model_dir {path!r}: "
                f"{error.strerror}; use a folder that it shares with all nodes"
            )
        finally:
            with contextlib.suppress(OSError):
                os.remove(token)
        if problem is not None:
            self._hear(Refused(reason=problem, is_late=is_late))
