"""Notes that tasks leave on the first parameter server.

A note is a text in a resource of the ps, by name. It outlives the sessions of the
tasks, it is in no checkpoint, and a ps that restarts has none.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf

from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers

_FIRST_TASK = "/job:ps/task:0"


class PsNotes:
    """The notes on the first ps; see `at_first_ps`.

    Its methods raise a DeadlineExceededError if the ps does not answer in time.
    """

    def __init__(self, session: tf.compat.v1.Session) -> None:
        self._session = session

    def read(self, *names: str) -> dict[str, str]:
        """Return the notes of these names, without those that do not exist."""
        handles = {name: handle(name) for name in names}
        asked = {
            name: tf.raw_ops.VarIsInitializedOp(resource=note)
            for name, note in handles.items()
        }
        are_there = self._session.run(asked)
        texts = {
            name: tf.raw_ops.ReadVariableOp(resource=note, dtype=tf.string)
            for name, note in handles.items()
            if are_there[name]
        }
        found = self._session.run(texts) if texts else {}
        return {name: text.decode() for name, text in found.items()}

    def write(self, name: str, text: str) -> None:
        """Write a note, in place of an earlier one of that name."""
        note = handle(name)
        self._session.run(tf.raw_ops.AssignVariableOp(resource=note, value=text))

    def remove(self, name: str) -> None:
        """Remove a note, if it exists."""
        note = handle(name)
        self._session.run(
            tf.raw_ops.DestroyResourceOp(resource=note, ignore_lookup_error=True)
        )


@contextlib.contextmanager
def at_first_ps(
    cluster: Mapping[str, Sequence[str]],
    config: tf.compat.v1.ConfigProto | None,
    timeout_secs: float,
) -> Iterator[PsNotes]:
    """Open a session whose target is the first ps itself.

    The target is not this task's own server, because a ps ends the sessions of a task
    that restarts (see SessionMgr in TensorFlow's distributed_runtime). The ps
    identifies a task by its name, and the chief of another training has the same name:
    a step of that training would fail or hang.

    Args:
        cluster: Job name to addresses, with at least one ps.
        config: The ConfigProto of the training's session, or None.
        timeout_secs: How long the ps may take to answer.
    """
    address = next(iter(peers.tasks(cluster, (TaskType.PS,)).values()))
    own_config = brief(config, timeout_secs)
    # A session starts only when every task that its filters admit has answered.
    own_config.device_filters[:] = [_FIRST_TASK]
    with (
        tf.Graph().as_default(),
        tf.device(f"{_FIRST_TASK}/device:CPU:0"),
        tf.compat.v1.Session(f"grpc://{address}", config=own_config) as session,
    ):
        yield PsNotes(session)


def handle(name: str) -> tf.Tensor:
    """Return the handle of a note on the device of the current graph."""
    return tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=name)


def brief(
    config: tf.compat.v1.ConfigProto | None, timeout_secs: float
) -> tf.compat.v1.ConfigProto:
    """Return a copy of `config` with a time limit for each call of the session.

    Args:
        config: The ConfigProto of the training's session, or None.
        timeout_secs: The limit of a call; infinity for no limit.
    """
    limited = tf.compat.v1.ConfigProto()
    if config is not None:
        limited.CopyFrom(config)
    if timeout_secs < math.inf:
        limited.operation_timeout_in_ms = int(timeout_secs * 1000)
    return limited
