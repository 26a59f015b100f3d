"""TensorFlow's private names that this runtime uses, behind names of its own."""

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as _session
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.distribute import distribute_coordinator_context, values
from tensorflow.python.eager import context
from tensorflow.python.framework import (
    composite_tensor,
    error_interpolation,
    op_def_registry,
    random_seed,
)
from tensorflow.python.ops import (
    gen_rnn_ops,
    resource_variable_ops,
    resources,
    while_v2,
)
from tensorflow.python.summary.writer.writer_cache import FileWriterCache
from tensorflow.python.training import (
    basic_session_run_hooks,
    monitored_session,
    saver,
    session_manager,
    sync_replicas_optimizer,
    training_util,
)
from tensorflow.python.training.session_manager import SessionManager

from estimator_runtime.config import proxies

# Sessions: what TensorFlow's own are made of.
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
SyncReplicasOptimizerHook: Any = sync_replicas_optimizer._SyncReplicasOptimizerHook
eager_context = context.context
graph_mode = context.graph_mode
# Graphs: kinds of values, and what an op is by its definition.
CompositeTensor: Any = composite_tensor.CompositeTensor
BaseResourceVariable: Any = resource_variable_ops.BaseResourceVariable
DistributedVariable: Any = values.DistributedVariable
GLOBAL_STEP_READ_KEY = training_util.GLOBAL_STEP_READ_KEY
op_definition = op_def_registry.get
# Adds where the ops were made that an error of a session names as {{node NAME}}.
interpolate_graph = error_interpolation.interpolate_graph
while_loop = while_v2.while_loop
# A layer of an LSTM in one op, with its gradient.
block_lstm = gen_rnn_ops.block_lstm
# The collection of the iterators of datasets.
ITERATORS: str = iterator_ops.GLOBAL_ITERATORS
local_resources = resources.local_resources
report_uninitialized_resources = resources.report_uninitialized_resources
# Maps a graph to how many of its ops have drawn a seed.
_seeds_drawn: Any = random_seed._graph_to_seed_dict
# Hooks and savers. Some names are public too; these cost a step one look-up only.
SessionRunArgs: Any = tf.compat.v1.train.SessionRunArgs
SessionRunContext: Any = tf.compat.v1.train.SessionRunContext
SessionRunValues: Any = tf.compat.v1.train.SessionRunValues
SecondOrStepTimer: Any = basic_session_run_hooks.SecondOrStepTimer
NeverTriggerTimer: Any = basic_session_run_hooks.NeverTriggerTimer
BaseSaverBuilder: Any = saver.BaseSaverBuilder
BulkSaverBuilder: Any = saver.BulkSaverBuilder
saver_of_graph = saver._get_saver_or_default

# What a session calls on its hooks at each step. A hook that has its own, set on itself
# and not by its class, is not what its class says.
STEP_METHODS = frozenset({"before_run", "after_run"})


def has_executed_ops() -> bool:
    """Return whether this process has executed an op eagerly, and so has threads."""
    found = context.context_safe()
    return found is not None and found._initialized


class _Time:
    """The module `time` with a `time()` that never goes back."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def time(self) -> float:
        return now()


def now() -> float:
    """Return seconds by the clock of TensorFlow's timers once they are patched."""
    return time.monotonic()


def current() -> float:
    """Return seconds by the clock of TensorFlow's timers, patched or not."""
    return basic_session_run_hooks.time.time()


def use_monotonic_time(_module: object) -> None:
    """Make the timers of hooks, and waits for a session, go by `now`."""
    for module in (basic_session_run_hooks, session_manager):
        module.time = _Time()


class _EventFiles(FileWriterCache):
    """The cache of event files, which refuses to open one in eager mode."""

    @staticmethod
    def get(logdir: str) -> tf.compat.v1.summary.FileWriter:
        with graph_mode():
            return FileWriterCache.get(logdir)


def open_event_files(hooks: Iterable[Any]) -> list[tf.compat.v1.summary.FileWriter]:
    """Return the event files of hooks that are open: shared ones, and their own."""
    own = [getattr(hook, "_summary_writer", None) for hook in hooks]
    kind = tf.compat.v1.summary.FileWriter
    found = [e for e in (*FileWriterCache._cache.values(), *own) if type(e) is kind]
    return [each for each in found if not each._closed]


def open_event_files_in_eager_mode(_module: object) -> None:
    """Make `ProfilerHook`, which opens its file when it is made, work in eager mode.

    TensorFlow's other hooks open theirs in the graph of the training.
    """
    basic_session_run_hooks.SummaryWriterCache = _EventFiles


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
    """What a call of a session fetches; made as TensorFlow's own.

    Its methods `fetches` and `targets` return the tensors to fetch, without
    repetitions, and the ops to run.
    """

    @property
    def has_handles(self) -> bool:
        """Whether it asks for handles of tensors that stay in the session."""
        return bool(self._fetch_handles)

    @property
    def are_ops(self) -> list[bool]:
        """For each distinct element of what is asked for, whether it is an op."""
        return self._ops

    @property
    def rebuild(self) -> Callable[[list[Any]], Any]:
        """Returns the caller's results from the values of those elements."""
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


@contextlib.contextmanager
def adding_to(graph: tf.Graph) -> Iterator[None]:
    """Make a graph the default, and allow ops to be added to it even if it is final.

    They are outside the scopes of the program. A session call in another thread never
    sees the graph half changed.
    """
    was_finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with (
            graph._mutation_lock(),
            graph.as_default(),
            tf.compat.v1.name_scope(None),
            graph.control_dependencies(None),
            graph.colocate_with(None, ignore_existing=True),
            graph.device(None),
        ):
            yield
    finally:
        if was_finalized:
            graph.finalize()


def run_after(op: tf.Operation, before: tf.Operation) -> None:
    """Make an op wait for another one that was created later."""
    op._add_control_input(before)


def is_reference(tensor: tf.Tensor) -> bool:
    """Return whether a tensor is that of a reference variable."""
    return tensor.dtype._is_ref_dtype


def set_flag(op: tf.Operation, name: str) -> None:
    """Set an attribute of an op to True."""
    op._set_attr(name, tf.compat.v1.AttrValue(b=True))


def value_of(variable: tf.Variable) -> tf.Tensor:
    """Return the tensor that a session fetches for a variable."""
    return variable._as_graph_element()


def functions_of(graph: tf.Graph) -> dict[str, Any]:
    """Return the functions in a graph by their names."""
    return graph._functions


def is_ready(manager: SessionManager, session: tf.compat.v1.Session) -> bool:
    """Return whether the `ready_op` finds the model initialized."""
    return manager._model_ready(session)[0]


def is_ready_for_local_init(
    manager: SessionManager, session: tf.compat.v1.Session
) -> bool:
    """Return whether the `ready_for_local_init_op` finds the variables initialized."""
    return manager._model_ready_for_local_init(session)[0]


def fetches_at_end(hook: tf.compat.v1.train.SessionRunHook) -> list[Any]:
    """Return what a hook of TensorFlow's fetches when the session ends; [] if nothing.

    Each item is the argument of one call of `Session.run`. Call this after `begin`.
    """
    found: list[Any] = []
    if isinstance(hook, tf.compat.v1.train.LoggingTensorHook) and hook._log_at_end:
        found.append(hook._current_tensors)
    final = isinstance(hook, tf.compat.v1.train.FinalOpsHook)
    if final and hook._final_ops is not None:
        found.append(hook._final_ops)
    return found


def adam_scalars(optimizer: tf.compat.v1.train.AdamOptimizer) -> list[Any]:
    """Return the numbers that Adam's update uses, as tensors and variables.

    Call this while the optimizer applies gradients, or after that in the same graph.

    Returns:
        The powers of beta1 and beta2, the learning rate, beta1, beta2 and epsilon.
    """
    powers = optimizer._get_beta_accumulators()
    rates = optimizer._lr_t, optimizer._beta1_t, optimizer._beta2_t
    return [*powers, *rates, optimizer._epsilon_t]


def seeds_drawn(graph: tf.Graph) -> int:
    """Return how many ops of a graph have drawn a seed from it."""
    return _seeds_drawn.get(graph, 0)


def set_seeds_drawn(graph: tf.Graph, count: int) -> None:
    """Set how many ops of a graph have drawn a seed; the next one continues."""
    _seeds_drawn[graph] = count


def has_learning_phase(graph: tf.Graph) -> bool:
    """Return whether Keras has a learning phase for a graph."""
    backends = [
        sys.modules.get(name) for name in ("keras.src.backend", "tf_keras.src.backend")
    ]
    return any(graph in getattr(b, "_GRAPH_LEARNING_PHASES", ()) for b in backends)


def parts_of_user(scaffold: tf.compat.v1.train.Scaffold) -> list[str]:
    """Return the names of the parts of a Scaffold, not finalized yet, that are given.

    They are those that an evaluation or a prediction uses, but for its Saver.
    """
    parts = {
        "init_fn": scaffold._user_init_fn,
        "init_feed_dict": scaffold.init_feed_dict,
        "local_init_feed_dict": scaffold.local_init_feed_dict,
        "local_init_op": scaffold.local_init_op,
        "ready_op": scaffold.ready_op,
        "ready_for_local_init_op": scaffold.ready_for_local_init_op,
    }
    return [name for name, value in parts.items() if value is not None]


def compile_call(
    session: tf.compat.v1.Session,
    feeds: Sequence[str],
    fetches: Sequence[str],
    targets: Sequence[str] = (),
) -> Callable[..., list[Any]]:
    """Return a function that does what `Session.run` does, compiled once.

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
