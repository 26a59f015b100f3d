"""Notes that the tasks of a multi-worker strategy leave for each other.

They are kept by the coordination service that TensorFlow starts with such a strategy
(`collective_all_reduce_strategy.py`) where eager execution is on. TensorFlow's
`PreemptionCheckpointHandler`, which is for TensorFlow 2 programs, uses it too, to agree
on a step.

With a note, the tasks also restore only what the chief has checked. Each task restores
by itself, with TensorFlow's own session creator. If a value is damaged, all tasks fail,
and they fail again after every restart. So the chief, which may set a checkpoint aside,
first reads all of its values, while the other tasks wait.
"""

import itertools
import logging
import os
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.tensor_bundle import checksums
from estimator_runtime.config.paths import is_local
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.tf_internals import sessions

_logger = logging.getLogger(__name__)
# To read all of a checkpoint from a slow disk may take long.
_CHECK_TIMEOUT_SECS = 1800.0
_NAMED_AFTER_SECS = 30.0
_restores = itertools.count()  # of the sessions of this process, the same in each task
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


def is_on() -> bool:
    """Return whether this program has a coordination service."""
    return bool(sessions.eager_context().coordination_service)


class SharedNote:
    """One note that the first task to post it writes, and that all tasks can read.

    Args:
        name: Its name, the same in all tasks, and different from that of other notes.
        context: The distribute coordinator's context of this task.

    Attributes:
        is_open: Whether the tasks can reach the coordination service.
    """

    def __init__(self, name: str, context: Any) -> None:
        self._key = f"estimator_runtime/{name}"
        self._own: tuple[str, int] = context.task_type, context.task_id
        self.is_open = is_on()

    def post(self, text: str) -> None:
        """Write the note, unless a task has written it already."""
        try:
            sessions.eager_context().set_config_key_value(self._key, text or " ")
        except tf.errors.AlreadyExistsError:
            return

    def read(self, timeout_secs: float = 0.0) -> str:
        """Wait for the note, and return its text.

        Args:
            timeout_secs: Seconds to wait at most; 0 for no limit.

        Raises:
            tf.errors.DeadlineExceededError: If it is not there by then.
        """
        context = sessions.eager_context()
        return context.get_config_key_value(self._key, int(1000 * timeout_secs)).strip()

    def acknowledge(self) -> None:
        """Record for the other tasks that this one has read the note."""
        sessions.eager_context().set_config_key_value(self._ack(self._own), "1")

    def wait_for_acknowledgements(self, tasks: list[tuple[str, int]]) -> None:
        """Wait until all these tasks have read the note.

        Args:
            tasks: List of (task type, index).
        """
        for task in tasks:
            sessions.eager_context().get_config_key_value(self._ack(task))

    def _ack(self, task: tuple[str, int]) -> str:
        task_type, index = task
        return f"{self._key}/{task_type}/{index}"


def check_restored(
    context: Any, checkpoint_dir: str | bytes | os.PathLike[str] | None
) -> None:
    """Check the values of the checkpoint that the tasks are to restore.

    In a program without eager execution the tasks cannot communicate, so the others do
    not wait. If they are faster than the chief, they fail once more.

    Args:
        context: The distribute coordinator's context of this task.
        checkpoint_dir: The folder to restore from, or None.

    Raises:
        CheckpointError: In the chief, if none of the folder's checkpoints can be used.
        PeerTimeoutError: In another task, if the chief does not report within half an
            hour that it has checked the checkpoint.
    """
    note = SharedNote(f"restore {next(_restores)}", context)
    folder = os.fsdecode(checkpoint_dir) if checkpoint_dir else ""
    if not folder or not is_local(folder):
        return
    can_talk = bool(peers(context)) and note.is_open
    if not context.is_chief:
        if can_talk:
            _wait_for_chief(note, folder)
        return
    try:
        with locks.write_lock():
            _check_values(folder)
    finally:
        if can_talk:  # after an error too, so that no task waits for this one for ever
            note.post("checked")


def _check_values(folder: str) -> None:
    newest = recovery.recover(folder)
    while newest is not None:
        problem = checksums.problem(newest.prefix)
        if problem is None:
            return
        newest = recovery.set_aside_latest(folder, problem)


def _wait_for_chief(note: SharedNote, folder: str) -> None:
    for timeout_secs in (_NAMED_AFTER_SECS, _CHECK_TIMEOUT_SECS):
        try:
            note.read(timeout_secs)
            return
        except tf.errors.DeadlineExceededError as error:
            problem = error
            _logger.warning(
                "waiting for the chief to check the checkpoint in %r", folder
            )
    raise PeerTimeoutError(
        f"the chief has not checked the checkpoint in {folder!r} within "
        f"{_CHECK_TIMEOUT_SECS:g} s; does its disk answer?"
    ) from problem
