"""Notes that the tasks of a multi-worker strategy leave for each other.

They are kept by the coordination service that TensorFlow starts with such a strategy
(`collective_all_reduce_strategy.py`) where eager execution is on. TensorFlow's
`PreemptionCheckpointHandler`, which is for TensorFlow 2 programs, uses it too, to agree
on a step.
"""

from typing import Any

import tensorflow as tf

from estimator_runtime.compat import internals

_COLLECTIVE = (
    "CollectiveAllReduceStrategy",
    "CollectiveAllReduceStrategyV1",
    "MultiWorkerMirroredStrategy",
)


def peers(context: Any) -> list[tuple[str, int]]:
    """Return the tasks that a step of this task waits for, itself included.

    Args:
        context: The distribute coordinator's context of this task.

    Returns:
        List of (task type, index); empty if a step waits for no other task.
    """
    if type(context._strategy).__name__ not in _COLLECTIVE:
        return []
    cluster = context.cluster_spec.as_dict() if context.cluster_spec else {}
    tasks = [
        (job, index)
        for job in ("chief", "worker")
        for index in range(len(cluster.get(job, ())))
    ]
    return tasks if len(tasks) > 1 else []


class Board:
    """One note that the first task to post it writes, and that all tasks can read.

    Args:
        name: Its name, the same in all tasks, and different from that of other boards.
        context: The distribute coordinator's context of this task.

    Attributes:
        is_open: Whether the tasks can reach the coordination service.
    """

    def __init__(self, name: str, context: Any) -> None:
        self._key = f"estimator_runtime/{name}"
        self._own: tuple[str, int] = context.task_type, context.task_id
        self.is_open = bool(internals.eager_context().coordination_service)

    def post(self, text: str) -> None:
        """Write the note, unless a task has written it already."""
        try:
            internals.eager_context().set_config_key_value(self._key, text or " ")
        except tf.errors.AlreadyExistsError:
            return

    def read(self, timeout_secs: float = 0.0) -> str:
        """Wait for the note, and return its text.

        Args:
            timeout_secs: Seconds to wait at most; 0 for no limit.

        Raises:
            tf.errors.DeadlineExceededError: If it is not there by then.
        """
        context = internals.eager_context()
        return context.get_config_key_value(self._key, int(1000 * timeout_secs)).strip()

    def acknowledge(self) -> None:
        """Record for the other tasks that this one has read the note."""
        internals.eager_context().set_config_key_value(self._ack(self._own), "1")

    def wait_for_acknowledgements(self, tasks: list[tuple[str, int]]) -> None:
        """Wait until all these tasks have read the note.

        Args:
            tasks: List of (task type, index).
        """
        for task in tasks:
            internals.eager_context().get_config_key_value(self._ack(task))

    def _ack(self, task: tuple[str, int]) -> str:
        task_type, index = task
        return f"{self._key}/{task_type}/{index}"
