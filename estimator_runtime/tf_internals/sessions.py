"""Sessions of TensorFlow: their classes, and direct calls of them."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as _session
from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.eager import context
from tensorflow.python.training import monitored_session
from tensorflow.python.training.session_manager import SessionManager

from estimator_runtime.config import proxies

SESSION_RUN = _session.BaseSession.run
StockMonitoredTrainingSession = monitored_session.MonitoredTrainingSession
# Stands for an interval that is not given; programs pass it on.
USE_DEFAULT: Any = monitored_session.USE_DEFAULT
StockHookedSession: Any = monitored_session._HookedSession
CoordinatedSessionCreator: Any = (
    monitored_session._MonitoredSession._CoordinatedSessionCreator
)
PREEMPTION_ERRORS: tuple = monitored_session._PREEMPTION_ERRORS
# Multi-worker strategies: the coordinator's view of this task, and its session.
current_worker_context = distribute_coordinator_context.get_current_worker_context
session_with_worker_context = (
    monitored_session._create_monitored_session_with_worker_context
)
eager_context = context.context
graph_mode = context.graph_mode


def has_executed_ops() -> bool:
    """Return whether this process has executed an op eagerly, and so has threads."""
    found = context.context_safe()
    return found is not None and found._initialized


def connect_without_proxy(_module: object) -> None:
    """Make servers connect to the tasks of their cluster without a proxy."""
    server = tf.distribute.Server
    original = server.__init__

    @functools.wraps(original)
    def init(self: Any, server_or_cluster_def: Any, *args: Any, **kwargs: Any) -> None:
        # A ServerDef has its cluster in a field; the other types are the cluster.
        given = getattr(server_or_cluster_def, "cluster", server_or_cluster_def)
        cluster = tf.train.ClusterSpec(given).as_cluster_def()
        addresses = [each for job in cluster.job for each in job.tasks.values()]
        proxies.exempt(addresses, os.environ)
        original(self, server_or_cluster_def, *args, **kwargs)

    server.__init__ = init


class FetchHandler(_session._FetchHandler):
    """The fetches of a session call, parsed as TensorFlow does it.

    Its methods `fetches` and `targets` return the tensors to fetch, without
    repetitions, and the ops to run.
    """

    @property
    def has_handles(self) -> bool:
        """Whether the fetches contain handles of tensors that stay in the session."""
        return bool(self._fetch_handles)

    @property
    def are_ops(self) -> list[bool]:
        """For each distinct fetch, whether it is an op."""
        return self._ops

    @property
    def rebuild(self) -> Callable[[list[Any]], Any]:
        """Returns the caller's results for the values of the distinct fetches."""
        return self._fetch_mapper.build_results


def compiled(
    session: tf.compat.v1.Session, options: config_pb2.CallableOptions
) -> Callable[..., Any]:
    """Compile a request of a session, and return a function that runs it.

    An error is the one that `Session.run` raises, with the name of the op and the line
    of the program that created it.
    """
    do_call = session._do_call
    return functools.partial(
        do_call, do_call(session._make_callable_from_options, options)
    )


def config_of(session: tf.compat.v1.Session) -> config_pb2.ConfigProto:
    """Return the ConfigProto of a session."""
    return getattr(session, "_config", None) or config_pb2.ConfigProto()


def is_closed(session: tf.compat.v1.Session) -> bool:
    """Return whether a session has been closed."""
    return session._closed


class _FinalSession(monitored_session._WrappedSession):
    """A session that is not created again when it is lost."""

    def __init__(
        self, session: Any, on_loss: Callable[[tf.errors.OpError], object]
    ) -> None:
        super().__init__(session)
        self._on_loss = on_loss

    def _check_stop(self) -> bool:
        try:
            return self._sess is None or self._sess._check_stop()
        except PREEMPTION_ERRORS:  # `close` would only log it
            raise
        except Exception:  # noqa: BLE001 (`close` raises it, after the hooks have ended)
            return True

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().run(*args, **kwargs)
        except tf.errors.OpError as error:
            is_of_collective = "Collective ops is aborted" in error.message
            if is_of_collective or isinstance(error, PREEMPTION_ERRORS):
                self._on_loss(error)
            raise


def stop_recovering(
    session: tf.compat.v1.train.MonitoredSession,
    on_loss: Callable[[tf.errors.OpError], object],
) -> None:
    """Make a session raise the errors after which TensorFlow creates another one.

    Args:
        session: A session that has been created.
        on_loss: Is called with the error of a step that another task may have caused,
            before it is raised.
    """
    session._sess = _FinalSession(session._sess._sess, on_loss)


def is_ready(manager: SessionManager, session: tf.compat.v1.Session) -> bool:
    """Return whether the `ready_op` finds the model initialized."""
    return manager._model_ready(session)[0]


def is_ready_for_local_init(
    manager: SessionManager, session: tf.compat.v1.Session
) -> bool:
    """Return whether the `ready_for_local_init_op` finds the variables initialized."""
    return manager._model_ready_for_local_init(session)[0]


def compile_call(
    session: tf.compat.v1.Session,
    feeds: Sequence[str],
    fetches: Sequence[str],
    targets: Sequence[str] = (),
) -> Callable[..., list[Any]]:
    """Return a compiled function that does what `Session.run` does.

    The feeds must be distinct, and none of them a fetch.

    Args:
        session: A session of this process.
        feeds: Names of the tensors to feed.
        fetches: Names of the tensors to fetch.
        targets: Names of ops to run too.

    Returns:
        A function from an array for each feed to a value for each fetch. It does not
        check shapes. Any number of threads may call it at a time.
    """
    distinct = list(dict.fromkeys(fetches))
    places = [distinct.index(name) for name in fetches]
    options = config_pb2.CallableOptions(feed=feeds, fetch=distinct, target=targets)
    run = compiled(session, options)

    def call(*arrays: Any) -> list[Any]:
        values = [owned(value) for value in run(*arrays)]
        return [values[place] for place in places]

    return call


def owned(value: Any) -> Any:
    """Return what a callable returned, copied if it is in a buffer of TensorFlow's.

    Callables, unlike `Session.run`, return arrays in TensorFlow's own buffers, which
    may be those of a variable: a step would change an array that the caller has kept,
    and the caller could change a variable.
    """
    is_view = isinstance(value, np.ndarray) and not value.flags.owndata
    return value.copy() if is_view else value


def run_parsed(
    session: tf.compat.v1.Session,
    fetches: Sequence[tf.Tensor],
    targets: Sequence[tf.Operation],
) -> list[Any]:
    """Run a session without parsing what to fetch, and return the values.

    The session must be open, and there must be something to run.
    """
    return session._do_run(None, targets, fetches, {}, None, None)
