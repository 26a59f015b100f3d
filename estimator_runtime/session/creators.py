"""How a task gets its session: the chief makes or adopts the variables, others wait.

TensorFlow's chief, when it comes back, restores the newest checkpoint into parameter
servers that are alive and ahead of it, and everyone loses steps without a word. This
one looks first, also whose training it is that lives there (see `ownership`).
"""

import contextlib
import logging
import math
import os
from typing import Any

import tensorflow as tf

from estimator_runtime import peers
from estimator_runtime.checkpoint import recovery, turns
from estimator_runtime.checkpoint.restore import VerifiedSessionCreator
from estimator_runtime.compat import readiness
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.live_values import NanSearch
from estimator_runtime.ownership import Owner, brief, disown, revoke
from estimator_runtime.role import TaskType

_logger = logging.getLogger(__name__)
_train = tf.compat.v1.train


def chief_creator(scaffold, *, master, config, checkpoint_dir, max_wait_secs):
    """Give what makes a chief's session, which looks for a ps only in a cluster."""
    own = {"master": master, "config": config, "checkpoint_dir": checkpoint_dir}
    if master:
        return ChiefCreator(scaffold, max_wait_secs=max_wait_secs, **own)
    return VerifiedSessionCreator(scaffold, **own)


class ChiefCreator(VerifiedSessionCreator):
    """Makes the session that initializes, restores or adopts the variables.

    Raises, when it makes one:
        CheckpointError: As `VerifiedSessionCreator`.
        PeerTimeoutError: If a ps does not answer within `max_wait_secs`.
        ConfigError: If the ps is in use by another training that is alive.
    """

    def __init__(self, scaffold, *, master, config, checkpoint_dir, max_wait_secs):
        super().__init__(
            scaffold, master=master, config=config, checkpoint_dir=checkpoint_dir
        )
        self._max_wait_secs = _limit(max_wait_secs)
        self._cluster = peers.this_task().cluster
        self._owner: Owner | None = None

    def create_session(self):
        """Return a session on variables no older than they were, unless they are NaN.

        They are adopted as they live on the ps, or restored, or initialized.
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
            self._owner = Owner(self._checkpoint_dir, self._cluster)
        self._scaffold.finalize()
        session = self._adopt(self._owner)
        if session is None:
            # Whoever finds what an interrupted restore leaves must not adopt it.
            self._revoke()
            session = super().create_session()
            self._owner.sign(session)
        return session

    def _adopt(self, owner: Owner) -> tf.compat.v1.Session | None:
        """Return a session on the live variables, or None if they must not be used."""
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
        # Nothing is restored here, and nobody is waited for: only a chief initializes.
        session, _ = self._get_session_manager().recover_session(
            self._master, config=self._config
        )
        is_adopted = False
        try:
            # Asked last: from here on a ps that restarts ends this session.
            is_adopted = owner.is_signed(session) and readiness.is_ready(
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
        """Return the state file's content; rewrite one that cannot be read first."""
        folder = os.fsdecode(self._checkpoint_dir)
        saved = _train.get_checkpoint_state(folder)
        if not saved and "://" not in folder:
            with turns.turn():
                recovery.recover(folder)
            saved = _train.get_checkpoint_state(folder)
        return saved

    def _revoke(self) -> None:
        with self._in_time():
            revoke(self._cluster, self._config, self._max_wait_secs)

    def disown_values(self):
        """Let nobody adopt the values of the ps: the training ended with a NaN."""
        disown(self._cluster, self._config)

    @contextlib.contextmanager
    def _in_time(self):
        """Say who has not answered, where a look at the ps takes too long."""
        try:
            yield
        except tf.errors.DeadlineExceededError as error:
            names = ", ".join(peers.tasks(self._cluster, (TaskType.PS,)))
            raise PeerTimeoutError(
                f"{names} did not answer within {self._max_wait_secs:g} s "
                "(session_creation_timeout_secs); is one of them stopped?"
            ) from error

    def _live_step(self):
        """Give the global step of variables that are all there, or None."""
        config = brief(self._config, self._max_wait_secs)
        with tf.compat.v1.Session(self._master, config=config) as session:
            step = _train.get_global_step()
            if step is None or not readiness.is_ready_for_local_init(
                self._get_session_manager(), session
            ):
                return None
            return int(session.run(step))

    def _has_nan(self, live_step, saved):
        """Tell whether nobody can go on from the live variables, and log it.

        Not each error that a NaN ends a training with says so.
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
    """Waits for the chief, and says for whom it waited when it took too long.

    Raises, when it makes a session:
        PeerTimeoutError: If a ps, or the chief, is not ready within `max_wait_secs`.
    """

    @property
    def _cluster(self):
        return peers.this_task().cluster if self._master else {}

    def create_session(self):
        """Wait for the parameter servers, then for their variables."""
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

    def disown_values(self):
        """Let no chief adopt the values of the ps: the training ended with a NaN."""
        disown(self._cluster, self._config)


def _limit(max_wait_secs):
    """Give the limit of a wait: without one, TensorFlow waits for ever."""
    return math.inf if max_wait_secs is None else max_wait_secs


def _saved_step(saved):
    step = saved.model_checkpoint_path.rpartition("-")[2]
    return int(step) if step.isdigit() else 0
