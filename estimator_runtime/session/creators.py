"""Session creators: the chief creates or adopts the variables, other tasks wait.

TensorFlow's chief, when it restarts, restores the newest checkpoint into parameter
servers that are alive and ahead of it: all tasks lose steps, and nothing is
logged. This chief looks at the live variables first, and at the training that they
belong to (see `AdoptionNote`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting
from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.restore.session_creator import VerifiedSessionCreator
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.config.paths import is_local, step_of
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import liveness, peers, ps_notes
from estimator_runtime.errors import ConfigError, PeerTimeoutError
from estimator_runtime.session.hooks.peer_watchdog import servers_watched
from estimator_runtime.session.settings import SessionSettings
from estimator_runtime.signals import request
from estimator_runtime.tf_internals import graphs, sessions

_logger = logging.getLogger(__name__)
_train = tf.compat.v1.train
_OWNER = "estimator_runtime_owner"
# A ps that is alive answers in milliseconds.
_DISOWN_TIMEOUT_SECS = 30
_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def session_creator(
    settings: SessionSettings, config: tf.compat.v1.ConfigProto | None
) -> tf.compat.v1.train.SessionCreator:
    """Return the session creator of this task.

    Args:
        settings: The settings of the session.
        config: The ConfigProto of the session, or None.
    """
    given: dict[str, Any] = {"master": settings.master, "config": config}
    wait: dict[str, Any] = {"max_wait_secs": settings.max_wait_secs}
    if not settings.is_chief:
        return WorkerCreator(settings.scaffold, **given, **wait)
    given["checkpoint_dir"] = settings.checkpoint_dir
    if settings.master:  # there may be a ps
        return ChiefCreator(settings.scaffold, **given, **wait)
    return VerifiedSessionCreator(settings.scaffold, **given)


class ChiefCreator(VerifiedSessionCreator):
    """A session creator that initializes, restores or adopts the variables.

    `create_session` raises:
        CheckpointError: As `VerifiedSessionCreator` does.
        PeerTimeoutError: If a ps does not answer within `max_wait_secs`.
        ConfigError: If the ps is in use by another training that is alive.

    If a ps that was ready stops answering, the process exits; see `servers_watched`. A
    stop that was requested ends the program unless the variables are adopted: then the
    end of the session saves them.

    Args:
        *args: Positional arguments of `VerifiedSessionCreator`.
        max_wait_secs: Longest wait for a ps, in seconds; None for no limit.
        **kwargs: Keyword arguments of `VerifiedSessionCreator`.

    Attributes:
        leave: Called when there is nothing to adopt, before variables are restored or
            initialized; see `loop.session.LoopSession`.
    """

    def __init__(self, *args: Any, max_wait_secs: float | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_wait_secs = _limit(max_wait_secs)
        self._cluster = peers.this_task().cluster
        self._owner: AdoptionNote | None = None
        self.leave: Callable[[], None] = request.leave

    @property
    def may_adopt(self) -> bool:
        """Whether parameter servers may hold steps that no checkpoint has."""
        return bool(self._checkpoint_dir and self._cluster.get(TaskType.PS))

    def create_session(self) -> tf.compat.v1.Session:
        """Return a session whose variables are adopted, restored or initialized.

        The live variables on the ps are adopted if they belong to this training, are
        at least as new as the newest checkpoint, and have no NaN.
        """
        self.restored_prefix = None
        servers = peers.tasks(self._cluster, (TaskType.PS,))
        if not servers:
            return super().create_session()
        liveness.wait_for(servers, self._max_wait_secs, meanwhile=request.leave)
        with servers_watched():
            return self._adopt_or_create()

    def _adopt_or_create(self) -> tf.compat.v1.Session:
        if not self._checkpoint_dir:
            self._revoke()
            return super().create_session()
        if self._owner is None:
            self._owner = AdoptionNote(self._checkpoint_dir, self._cluster)
        self._scaffold.finalize()
        session = self._adopt(self._owner)
        if session is None:
            self.leave()
            # A chief that finds the result of an interrupted restore must not adopt it.
            self._revoke()
            session = super().create_session()
            self._owner.sign(session)
        return session

    def _adopt(self, owner: AdoptionNote) -> tf.compat.v1.Session | None:
        """Return a session of the live variables, or None if they must not be used."""
        with self._in_time():
            is_ours = owner.check(self._config, self._max_wait_secs)
            live_step = self._live_step() if is_ours else None
        if live_step is None:
            return None
        saved = self._saved()
        if not saved or live_step < (step_of(saved.model_checkpoint_path) or 0):
            return None
        if self._has_nan(live_step, saved):
            return None
        # This restores nothing and waits for no task: only a chief initializes.
        session, _ = self._get_session_manager().recover_session(
            self._master, config=self._config
        )
        with contextlib.ExitStack() as unless_adopted:
            unless_adopted.callback(session.close)
            # Checked last: from here on, a ps that restarts ends this session.
            manager = self._get_session_manager()
            if not (owner.is_signed(session) and sessions.is_ready(manager, session)):
                return None
            unless_adopted.pop_all()
        _logger.warning(
            "the parameter servers are alive at step %d; going on from there, not "
            "from the checkpoint %s",
            live_step,
            saved.model_checkpoint_path,
        )
        if self._scaffold.saver is not None:
            paths = saved.all_model_checkpoint_paths
            self._scaffold.saver.recover_last_checkpoints(paths)
        return session

    def _saved(self) -> Any:
        """Return the content of the state file, rewritten if it cannot be read."""
        folder = os.fsdecode(self._checkpoint_dir)
        saved = _train.get_checkpoint_state(folder)
        if not saved and is_local(folder):
            with locks.write_lock():
                recovery.recover(folder)
            saved = _train.get_checkpoint_state(folder)
        return saved

    def _revoke(self) -> None:
        with self._in_time():
            revoke(self._cluster, self._config, self._max_wait_secs)

    def disown_values(self) -> None:
        """Prevent adoption of the values on the ps: the training ended with a NaN."""
        disown(self._cluster, self._config)

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Raise a PeerTimeoutError that names the ps if they do not answer in time."""
        try:
            yield
        except tf.errors.DeadlineExceededError as error:
            names = ", ".join(peers.tasks(self._cluster, (TaskType.PS,)))
            raise PeerTimeoutError(
                f"{names} did not answer within {self._max_wait_secs:g} s "
                "(session_creation_timeout_secs); is one of them stopped?"
            ) from error

    def _live_step(self) -> int | None:
        """Return the global step on the ps, or None if a variable is missing there."""
        config = ps_notes.brief(self._config, self._max_wait_secs)
        with tf.compat.v1.Session(self._master, config=config) as session:
            step = _train.get_global_step()
            if step is None or not sessions.is_ready_for_local_init(
                self._get_session_manager(), session
            ):
                return None
            return int(session.run(step))

    def _has_nan(self, live_step: int, saved: Any) -> bool:
        """Return whether a live variable has a NaN, and log it.

        The note may still be there, because not every error that is caused by a NaN is
        recognizable as such.
        """
        config = ps_notes.brief(self._config, self._max_wait_secs)
        with (
            self._in_time(),
            tf.compat.v1.Session(self._master, config=config) as session,
        ):
            name = first_nan(session, tf.compat.v1.trainable_variables())
        if name is not None:
            _logger.warning(
                "the parameter servers are alive at step %d, but have NaN in %r; going "
                "on from the checkpoint %s",
                live_step,
                name,
                saved.model_checkpoint_path,
            )
        return name is not None


class WorkerCreator(tf.compat.v1.train.WorkerSessionCreator):
    """A session creator that waits for the chief, and names it at a timeout.

    `create_session` raises:
        PeerTimeoutError: If a ps, or the chief, is not ready within `max_wait_secs`.

    If a ps that was ready stops answering, the process exits; see `servers_watched`.
    """

    @property
    def _cluster(self) -> Mapping[str, Sequence[str]]:
        return peers.this_task().cluster if self._master else {}

    def create_session(self) -> tf.compat.v1.Session:
        """Wait for the parameter servers, then for the variables; return a session."""
        cluster = self._cluster
        servers = peers.tasks(cluster, (TaskType.PS,))
        liveness.wait_for(servers, _limit(self._max_wait_secs))
        reporting.progress(doing="waiting for the chief")
        try:
            with servers_watched():
                return super().create_session()
        except tf.errors.DeadlineExceededError as error:
            chiefs = peers.tasks(cluster, (TaskType.CHIEF, TaskType.MASTER))
            names = [f"{name} at {address}" for name, address in chiefs.items()]
            raise PeerTimeoutError(
                f"the model was not initialized by {', '.join(names) or 'the chief'} "
                f"within {self._max_wait_secs:g} s (session_creation_timeout_secs); is "
                "it running?"
            ) from error

    def disown_values(self) -> None:
        """Prevent adoption of the values on the ps: the training ended with a NaN."""
        disown(self._cluster, self._config)


def _limit(max_wait_secs: float | None) -> float:
    """Return the limit of a wait as a number; TensorFlow's None is no limit."""
    return math.inf if max_wait_secs is None else max_wait_secs


class AdoptionNote:
    """A note on each ps that names the training whose variables it holds.

    Once its variables are complete, a chief writes a note to every ps: its address and
    the model directory. A restarted chief adopts the variables only if each ps still
    has that note. The note is removed before anything is restored or initialized, and a
    restarted ps has none: values of two different steps are never adopted together. The
    note is in no checkpoint. Create this object before the graph is finalized.

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
        self._cluster = cluster
        self._sign: list[tf.Operation] = []
        self._are_there: list[tf.Tensor] = []
        for index in range(len(cluster[TaskType.PS])):
            with (
                tf.compat.v1.get_default_graph().control_dependencies(None),
                tf.compat.v1.name_scope(None),
                tf.device(f"/job:ps/task:{index}/device:CPU:0"),
            ):
                note = ps_notes.handle(_OWNER)
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
        with ps_notes.at_first_ps(self._cluster, config, timeout_secs) as notes:
            found = notes.read(_OWNER).get(_OWNER)
        if found is None:
            return False
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
    with ps_notes.at_first_ps(cluster, config, timeout_secs) as notes:
        notes.remove(_OWNER)


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
        liveness.wait_for({name: address}, timeout_secs)
        revoke(cluster, config, timeout_secs)
    except (PeerTimeoutError, tf.errors.OpError) as error:
        _logger.error(
            "%s could not be told within %g s that its values are unusable (%s); a "
            "chief that restarts while it is alive goes on from them",
            name,
            timeout_secs,
            type(error).__name__,
        )


def first_nan(
    session: tf.compat.v1.Session, variables: Iterable[tf.Variable]
) -> str | None:
    """Return the name of the first variable that has a NaN, or None.

    The servers that hold the variables search them, and transfer only the results. A
    server needs a byte for each value meanwhile. The ops of each search stay in the
    graph.

    Args:
        session: A session in which the variables are initialized. Its graph may be
            finalized.
        variables: The trainable variables; a NaN in any other may be intended.
    """
    has_nan: dict[str, tf.Tensor] = {}
    with graphs.adding_to(session.graph):
        for variable in variables:
            if variable.dtype.base_dtype in _FLOATS:
                with tf.device(variable.device):
                    is_nan = tf.math.is_nan(variable.read_value())
                    has_nan[variable.op.name] = tf.reduce_any(is_nan)
    found = session.run(has_nan)
    return next((name for name, is_nan in found.items() if is_nan), None)
