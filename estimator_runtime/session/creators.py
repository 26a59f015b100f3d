"""Session creators: the chief creates or adopts the variables, other tasks wait.

TensorFlow's chief, when it restarts, restores the newest checkpoint into parameter
servers that are alive and ahead of it: all tasks lose steps, and nothing is
logged. This chief looks at the live variables first, and at the training that they
belong to (see `ps_adoption`).
"""

import contextlib
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.restore import recovery
from estimator_runtime.checkpoint.restore.session_creator import VerifiedSessionCreator
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.compat import internals
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import peers
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.session.ps_adoption import (
    AdoptionNote,
    NanSearch,
    brief,
    disown,
    revoke,
)
from estimator_runtime.session.settings import SessionSettings

_logger = logging.getLogger(__name__)
_train = tf.compat.v1.train


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

    Args:
        scaffold: The Scaffold of the session.
        master: Session target.
        config: The ConfigProto of the session, or None.
        checkpoint_dir: Folder to restore from, or None.
        max_wait_secs: Longest wait for a ps, in seconds; None for no limit.
    """

    def __init__(
        self,
        scaffold: tf.compat.v1.train.Scaffold,
        *,
        master: str,
        config: tf.compat.v1.ConfigProto | None,
        checkpoint_dir: str | bytes | None,
        max_wait_secs: float | None,
    ) -> None:
        super().__init__(
            scaffold, master=master, config=config, checkpoint_dir=checkpoint_dir
        )
        self._max_wait_secs = _limit(max_wait_secs)
        self._cluster = peers.this_task().cluster
        self._owner: AdoptionNote | None = None

    def create_session(self) -> tf.compat.v1.Session:
        """Return a session whose variables are adopted, restored or initialized.

        The live variables on the ps are adopted if they belong to this training, are
        at least as new as the newest checkpoint, and have no NaN.
        """
        self.restored_prefix = None
        servers = peers.tasks(self._cluster, (TaskType.PS,))
        if not servers:
            return super().create_session()
        peers.wait_for(servers, self._max_wait_secs)
        if not self._checkpoint_dir:
            self._revoke()
            return super().create_session()
        if self._owner is None:
            self._owner = AdoptionNote(self._checkpoint_dir, self._cluster)
        self._scaffold.finalize()
        session = self._adopt(self._owner)
        if session is None:
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
        if not saved or live_step < _saved_step(saved):
            return None
        if self._has_nan(live_step, saved):
            return None
        # This restores nothing and waits for no task: only a chief initializes.
        session, _ = self._get_session_manager().recover_session(
            self._master, config=self._config
        )
        is_adopted = False
        try:
            # Checked last: from here on, a ps that restarts ends this session.
            is_adopted = owner.is_signed(session) and internals.is_ready(
                self._get_session_manager(), session
            )
        finally:
            if not is_adopted:
                session.close()
        if not is_adopted:
            return None
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
        if not saved and "://" not in folder:
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
        config = brief(self._config, self._max_wait_secs)
        with tf.compat.v1.Session(self._master, config=config) as session:
            step = _train.get_global_step()
            if step is None or not internals.is_ready_for_local_init(
                self._get_session_manager(), session
            ):
                return None
            return int(session.run(step))

    def _has_nan(self, live_step: int, saved: Any) -> bool:
        """Return whether a live variable has a NaN, and log it.

        The note may still be there, because not every error that is caused by a NaN is
        recognizable as such.
        """
        config = brief(self._config, self._max_wait_secs)
        search = NanSearch(tf.compat.v1.trainable_variables())
        with (
            self._in_time(),
            tf.compat.v1.Session(
                self._master, graph=search.graph, config=config
            ) as session,
        ):
            name = search.first(session)
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
    """

    @property
    def _cluster(self) -> Mapping[str, Sequence[str]]:
        return peers.this_task().cluster if self._master else {}

    def create_session(self) -> tf.compat.v1.Session:
        """Wait for the parameter servers, then for the variables; return a session."""
        cluster = self._cluster
        servers = peers.tasks(cluster, (TaskType.PS,))
        peers.wait_for(servers, _limit(self._max_wait_secs))
        try:
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


def _saved_step(saved: Any) -> int:
    step = saved.model_checkpoint_path.rpartition("-")[2]
    return int(step) if step.isdigit() else 0
