"""A board on which the tasks of a multi-worker strategy leave notes for each other.

It is the coordination service that TensorFlow starts with such a strategy
(`collective_all_reduce_strategy.py`) where eager execution is on; its
`PreemptionCheckpointHandler`, for TensorFlow 2 programs, agrees on a step by it too.
"""

import tensorflow as tf
from tensorflow.python.eager import context as eager_context

_COLLECTIVE = (
    "CollectiveAllReduceStrategy",
    "CollectiveAllReduceStrategyV1",
    "MultiWorkerMirroredStrategy",
)


def peers(context):
    """Give the tasks that a step of this one waits for, this one included.

    Args:
        context: The distribute coordinator's context of this task.

    Returns:
        List of (task type, index); empty if it waits for nobody.
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
    """One note that the first to post it writes, and all can read.

    Args:
        name: Its name, the same in all tasks, and different from that of other boards.
        context: The distribute coordinator's context of this task.

    Attributes:
        is_open: Whether the tasks can reach it.
    """

    def __init__(self, name, context):
        self._key = f"estimator_runtime/{name}"
        self._own = context.task_type, context.task_id
        self.is_open = bool(eager_context.context().coordination_service)

    def post(self, text):
        """Write the note, if nobody has."""
        try:
            eager_context.context().set_config_key_value(self._key, text or " ")
        except tf.errors.AlreadyExistsError:
            return

    def read(self, timeout_secs=0.0):
        """Wait for the note; give its text.

        Args:
            timeout_secs: For how long; 0 for as long as it takes.

        Raises:
            tf.errors.DeadlineExceededError: If it is not there by then.
        """
        context = eager_context.context()
        return context.get_config_key_value(self._key, int(1000 * timeout_secs)).strip()

    def acknowledge(self):
        """Let the others know that this task has read the note."""
        eager_context.context().set_config_key_value(self._ack(self._own), "1")

    def wait_for_acknowledgements(self, tasks):
        """Wait until all these tasks have read the note.

        Args:
            tasks: List of (task type, index).
        """
        for task in tasks:
            eager_context.context().get_config_key_value(self._ack(task))

    def _ack(self, task):
        task_type, index = task
        return f"{self._key}/{task_type}/{index}"
