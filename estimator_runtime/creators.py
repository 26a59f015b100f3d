"""How a task gets its session: the chief makes or adopts the variables, others wait.

TensorFlow's chief, when it comes back, restores the newest checkpoint into parameter
servers that are alive and ahead of it, and everyone loses steps without a word. This
one looks first, also whose training it is that lives there (see `ownership`).
"""

import contextlib
import logging
import math

import tensorflow as tf

from estimator_runtime import peers
from estimator_runtime.checkpoint.restore import VerifiedSessionCreator
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.live_values import NanSearch
from estimator_runtime.ownership import Owner, brief, disown
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
        self._owner = None

    def create_session(self):
        """Make a session, on variables no older than they were, unless they are NaN."""
        self.restored_prefix = None
        servers = peers.tasks(self._cluster, (TaskType.PS,))
        if not servers or not self._checkpoint_dir:
            return super().create_session()
        peers.wait_for(servers, self._max_wait_secs)
        if self._owner is None:
            self._owner = Owner(self._checkpoint_dir, self._cluster)
        self._scaffold.finalize()
        with self._in_time():
            is_ours = self._owner.check(self._config, self._max_wait_secs)
            live_step = self._live_step() if is_ours else None
        saved = _train.get_checkpoint_state(self._checkpoint_dir)
        is_ahead = live_step is not None and saved and live_step >= _saved_step(saved)
        if is_ahead and not self._has_nan(live_step, saved):
            _logger.warning(
                "the parameter servers are alive at step %d; going on from there, not "
                "from the checkpoint %s",
                live_step,
                saved.model_checkpoint_path,
            )
            # What a worker does: use the variables that are there.
            session = self._get_session_manager().wait_for_session(
                self._master, config=self._config, max_wait_secs=self._max_wait_secs
            )
            if self._scaffold.saver is not None:
                paths = saved.all_model_checkpoint_paths
                self._scaffold.saver.recover_last_checkpoints(paths)
        else:
            session = super().create_session()
        self._owner.sign(session)
        return session

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
            missing = session.run(self._scaffold.ready_for_local_init_op)
            step = _train.get_global_step()
            if missing.size or step is None:
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
