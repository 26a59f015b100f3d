"""Decide whether a restarted chief may adopt the variables on the parameter servers.

Once its variables are complete, a chief writes a note to every ps: its address and the
model directory. A restarted chief adopts the variables only if each ps still has that
note. The note is removed before anything is restored or initialized, and a restarted ps
has none: values of two different steps are never adopted together.
"""

import contextlib
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers
from estimator_runtime.errors import ConfigError, PeerTimeoutError

_logger = logging.getLogger(__name__)
_OWNER = "estimator_runtime_owner"
_FIRST_TASK = "/job:ps/task:0"
# A ps that is alive answers in milliseconds.
_DISOWN_TIMEOUT_SECS = 30
_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class AdoptionNote:
    """A note on each ps that names the training whose variables it holds.

    The note is in no checkpoint. Create this object before the graph is finalized.

    Args:
        checkpoint_dir: The model directory.
        cluster: Job name to addresses, with at least one ps.
    """

    def __init__(
        self, checkpoint_dir: Any, cluster: Mapping[str, Sequence[str]]
    ) -> None:
        chief = peers.tasks(cluster, (TaskType.CHIEF, TaskType.MASTER))
        address = next(iter(chief.values()), "")
        self._name = f"{address} {os.path.realpath(checkpoint_dir)}"
        servers = list(peers.tasks(cluster, (TaskType.PS,)).values())
        self._server = servers[0]
        self._sign: list[tf.Operation] = []
        self._are_there: list[tf.Tensor] = []
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

    def check(
        self, config: tf.compat.v1.ConfigProto | None, timeout_secs: float
    ) -> bool:
        """Return whether the first ps has the note of this training.

        Args:
            config: The ConfigProto of the training's session, or None.
            timeout_secs: How long the ps may take to answer.

        Raises:
            ConfigError: If it has the note of another training, whose chief is alive.
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
        """Write the note to each ps.

        Args:
            session: The session in which all variables were initialized or restored. It
                cannot write to a ps that has restarted since: TensorFlow raises an
                error.
        """
        session.run(self._sign)

    def is_signed(self, session: tf.compat.v1.Session) -> bool:
        """Return whether each ps that `session` uses has a note."""
        return all(session.run(self._are_there))


def revoke(
    cluster: Mapping[str, Sequence[str]],
    config: tf.compat.v1.ConfigProto | None,
    timeout_secs: float,
) -> None:
    """Remove the note of the first ps, so that no chief adopts any variables.

    Args:
        cluster: Job name to addresses, with at least one ps, which answers.
        config: The ConfigProto of the training's session, or None.
        timeout_secs: How long the ps may take to answer.

    Raises:
        tf.errors.OpError: If the ps does not confirm the removal, such as a
            DeadlineExceededError. The note may still be there.
    """
    address = next(iter(peers.tasks(cluster, (TaskType.PS,)).values()))
    with _at_first_ps(address, config, timeout_secs) as (session, note):
        session.run(
            tf.raw_ops.DestroyResourceOp(resource=note, ignore_lookup_error=True)
        )


def disown(
    cluster: Mapping[str, Sequence[str]],
    config: tf.compat.v1.ConfigProto | None,
    timeout_secs: float = _DISOWN_TIMEOUT_SECS,
) -> None:
    """Revoke the note because the values on the parameter servers are unusable.

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
            "%s could not be told within %g s that its values are unusable (%s); a "
            "chief that restarts while it is alive goes on from them",
            name,
            timeout_secs,
            type(error).__name__,
        )


@contextlib.contextmanager
def _at_first_ps(
    address: str, config: tf.compat.v1.ConfigProto | None, timeout_secs: float
) -> Iterator[tuple[tf.compat.v1.Session, tf.Tensor]]:
    """Open a session whose target is the first ps itself.

    The target is not this task's own server, because a ps ends the sessions of a task
    that restarts (see SessionMgr in TensorFlow's distributed_runtime). The ps
    identifies a task by its name, and the chief of another training has the same name:
    a step of that training would fail or hang.

    Yields:
        The session, and the handle of the note.
    """
    own_config = brief(config, timeout_secs)
    # A session starts only when every task that its filters admit has answered.
    own_config.device_filters[:] = [_FIRST_TASK]
    with tf.Graph().as_default(), tf.device(f"{_FIRST_TASK}/device:CPU:0"):
        note = _note()
        with tf.compat.v1.Session(f"grpc://{address}", config=own_config) as session:
            yield session, note


def _note() -> tf.Tensor:
    return tf.raw_ops.VarHandleOp(dtype=tf.string, shape=[], shared_name=_OWNER)


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


class NanSearch:
    """A search for NaN in variables that runs on the servers that hold them.

    Only the results are transferred, not the values.

    Args:
        variables: The trainable variables; a NaN in any other may be intended.

    Attributes:
        graph: The graph of the search. The program's own graph may be finalized, and
            needs these operations at no other time.
    """

    def __init__(self, variables: Iterable[tf.Variable]) -> None:
        self.graph = tf.Graph()
        self._suspicions: dict[str, tf.Tensor] = {}
        self._proofs: dict[str, tf.Tensor] = {}
        with self.graph.as_default():
            for variable in variables:
                if variable.dtype.base_dtype in _FLOATS:
                    self._add(variable)

    def _add(self, variable: tf.Variable) -> None:
        name = variable.op.name
        with tf.device(variable.device):
            value = _read(variable)
            # A sum needs no memory, and is NaN if any value is. But it is also NaN if
            # there are infinities of both signs. The proof needs a byte for each value.
            self._suspicions[name] = tf.math.is_nan(tf.reduce_sum(value))
            self._proofs[name] = tf.reduce_any(tf.math.is_nan(value))

    def first(self, session: tf.compat.v1.Session) -> str | None:
        """Return the name of the first variable that has a NaN, or None.

        Args:
            session: A session of `graph` on the servers that hold the variables, where
                all of them are initialized.
        """
        if not self._suspicions:
            return None  # an empty graph cannot be run
        suspicions = session.run(self._suspicions)
        suspects = {name: self._proofs[name] for name in suspicions if suspicions[name]}
        proofs = session.run(suspects) if suspects else {}
        return next((name for name, is_proven in proofs.items() if is_proven), None)


def _read(variable: tf.Variable) -> tf.Tensor:
    """Return the value of a variable of another graph.

    A server identifies a variable by its name.
    """
    operation = variable.op
    versions = operation.graph.graph_def_versions
    definition = tf.compat.v1.GraphDef(node=[operation.node_def], versions=versions)
    (node,) = definition.node
    del node.input[:]
    node.attr.pop("_class", None)  # refers to other nodes of its graph
    (held,) = tf.graph_util.import_graph_def(
        definition, return_elements=[operation.outputs[0].name], name=""
    )
    if held.dtype != tf.resource:
        return held
    return tf.raw_ops.ReadVariableOp(resource=held, dtype=variable.dtype.base_dtype)
