"""Identifies the training that owns the variables on the parameter servers.

Once its variables are complete, a chief leaves a note with every ps: its address and
the model directory. A chief that comes back adopts the variables only if each ps still
has that note. It is removed before anything is restored or initialized, and a ps that
has restarted has none: values of two different steps are never adopted together.
"""

import contextlib
import logging
import math
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from estimator_runtime import peers
from estimator_runtime.errors import ConfigError, PeerTimeoutError
from estimator_runtime.role import TaskType

_logger = logging.getLogger(__name__)
_OWNER = "estimator_runtime_owner"
_FIRST_TASK = "/job:ps/task:0"
# A ps that is alive answers in milliseconds.
_DISOWN_TIMEOUT_SECS = 30


class Owner:
    """A note on each ps that says whose variables they hold; in no checkpoint.

    It must be made before the graph is final.

    Args:
        checkpoint_dir: The model directory.
        cluster: Job name to addresses, with a ps.
    """

    def __init__(self, checkpoint_dir, cluster):
        chief = peers.tasks(cluster, (TaskType.CHIEF, TaskType.MASTER))
        address = next(iter(chief.values()), "")
        self._name = f"{address} {os.path.realpath(checkpoint_dir)}"
        servers = list(peers.tasks(cluster, (TaskType.PS,)).values())
        self._server = servers[0]
        self._sign, self._are_there = [], []
        for index in range(len(servers)):
            with (
                tf.compat.v1.get_default_graph().control_dependencies(None),
                tf.compat.v1.name_scope(None),
                tf.device(f"/job:ps/task:{index}/device:CPU:0"),
            ):
                note = _note()
                self._sign.append(
                    tf.raw_ops.AssignVariableOp(resource=note, value=self._name)
                )
                self._are_there.append(tf.raw_ops.VarIsInitializedOp(resource=note))

    def check(self, config, timeout_secs):
        """Tell whether the variables, if there are any, are of this training.

        Args:
            config: The ConfigProto of the training's session, or None.
            timeout_secs: How long the ps may take to answer.

        Raises:
            ConfigError: If they are of another, whose chief is there.
            tf.errors.DeadlineExceededError: If the ps does not answer in time.
        """
        with _at_first_ps(self._server, config, timeout_secs) as (session, note):
            if not session.run(tf.raw_ops.VarIsInitializedOp(resource=note)):
                return False
            read = tf.raw_ops.ReadVariableOp(resource=note, dtype=tf.string)
            found = session.run(read).decode()
        if found == self._name:
            return True
        address, _, model_dir = found.partition(" ")
        if address != self._name.partition(" ")[0] and peers.is_listening(address):
            raise ConfigError(
                f"TF_CONFIG: cluster['ps'] is in use by another training, of the chief "
                f"at {address!r} with the model_dir {model_dir!r}; start parameter "
                "servers of your own, or end that training first"
            )
        return False

    def sign(self, session: tf.compat.v1.Session) -> None:
        """Leave the note with each ps.

        Args:
            session: The session in which all variables were initialized or restored. It
                cannot sign for a ps that has restarted since: TensorFlow refuses.
        """
        session.run(self._sign)

    def is_signed(self, session: tf.compat.v1.Session) -> bool:
        """Return whether each ps that `session` works with has a note."""
        return all(session.run(self._are_there))


def revoke(
    cluster: Mapping[str, Sequence[str]],
    config: tf.compat.v1.ConfigProto | None,
    timeout_secs: float,
) -> None:
    """Remove the note of the first ps, so that no chief adopts any variables.

    Args:
        cluster: Job name to addresses, with a ps that answers.
        config: The ConfigProto of the training's session, or None.
        timeout_secs: How long the ps may take to answer.

    Raises:
        tf.errors.OpError: If the ps does not confirm it, such as a
            DeadlineExceededError: the note may still be there.
    """
    address = next(iter(peers.tasks(cluster, (TaskType.PS,)).values()))
    with _at_first_ps(address, config, timeout_secs) as (session, note):
        session.run(
            tf.raw_ops.DestroyResourceOp(resource=note, ignore_lookup_error=True)
        )


def disown(cluster, config, timeout_secs=_DISOWN_TIMEOUT_SECS):
    """Revoke the note because the parameter servers hold no good values.

    A failure is logged, not raised: the caller is about to raise another error.

    Args:
        cluster: Job name to addresses; nothing is done if there is no ps.
        config: The ConfigProto of the training's session, or None.
        timeout_secs: How long the ps may take to answer.
    """
    servers = peers.tasks(cluster, (TaskType.PS,))
    if not servers:
        return
    name, address = next(iter(servers.items()))
    try:
        peers.wait_for({name: address}, timeout_secs)
        revoke(cluster, config, timeout_secs)
    except (PeerTimeoutError, tf.errors.OpError) as error:
        _logger.error(
            "%s did not take note within %g s that its values are no good (%s); a "
            "chief that comes back while it is alive goes on with them",
            name,
            timeout_secs,
            type(error).__name__,
        )


@contextlib.contextmanager
def _at_first_ps(address, config, timeout_secs):
    """Give a session of the first ps itself, and the handle of the note there.

    Not one of this task's server: a ps ends the sessions of a task that comes back (see
    SessionMgr in TensorFlow's distributed_runtime), and knows it by its name, which the
    chief of another training has too. That one's step would fail, or hang.

    Args:
        address: Of the first ps.
        config: The ConfigProto of the training's session, or None.
        timeout_secs: How long a call may take.
    """
    own_config = brief(config, timeout_secs)
    # No session begins before all tasks have answered that it may see.
    own_config.device_filters[:] = [_FIRST_TASK]
    with tf.Graph().as_default(), tf.device(f"{_FIRST_TASK}/device:CPU:0"):
        note = _note()
        with tf.compat.v1.Session(f"grpc://{address}", config=own_config) as session:
            yield session, note


def _note():
    return tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_OWNER)


def brief(config, timeout_secs):
    """Give the ConfigProto of a session in which no call takes longer.

    Args:
        config: The ConfigProto of the training's session, or None.
        timeout_secs: The limit of a call; infinity for none.
    """
    limited = tf.compat.v1.ConfigProto()
    if config is not None:
        limited.CopyFrom(config)
    if timeout_secs < math.inf:
        limited.operation_timeout_in_ms = int(timeout_secs * 1000)
    return limited
