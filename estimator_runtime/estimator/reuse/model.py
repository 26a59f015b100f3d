"""The graph of a model for one mode and structure of inputs, and its sessions.

A session belongs to one call at a time: an evaluation, or a prediction until its last
result. So two threads can use a model at once, and a prediction that is read by half
keeps the checkpoint that it began with.

A session that is kept must behave like a new one. It does if what is fetched changes
nothing but variables that a call sets again: those of a checkpoint, and local ones such
as those of metrics. Other graphs are kept too, and get a new session at each call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.checkpoint import Identity, identity, index_identity
from estimator_runtime.estimator.reuse import state
from estimator_runtime.estimator.reuse.inputs import (
    CannotReuse,
    Inputs,
    first_line,
    to_feed,
)
from estimator_runtime.tf_internals import graphs, savers, sessions

tf1 = tf.compat.v1
# Collections through which a graph has initializers of its own.
_OWN_INITIALIZERS = (
    tf1.GraphKeys.LOCAL_INIT_OP,
    tf1.GraphKeys.READY_OP,
    tf1.GraphKeys.READY_FOR_LOCAL_INIT_OP,
    "saved_model_initializers",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """The results that a call computes with a model.

    Attributes:
        scaffold: `tf.compat.v1.train.Scaffold`, not finalized.
        results: Tensors, or what else a session fetches.
        update: What runs for each batch; None if the results are those of a batch.
    """

    scaffold: tf.compat.v1.train.Scaffold
    results: Any
    update: tf.Operation | None = None


class Model:
    """The graph of a model, for one mode and one structure of inputs.

    Args:
        inputs: The inputs of the call that needs it.
        build: Adds the model to the default graph. It takes an input_fn that adds
            placeholders, and has to be called first.
        session_config: Configuration of its sessions.

    Attributes:
        is_stateless: Whether a session may serve several calls, one after the other.

    Raises:
        CannotReuse: If the model needs a graph of its own for each call.
    """

    def __init__(
        self,
        inputs: Inputs,
        build: Callable[[Callable[[], tuple[Any, Any]]], Outputs],
        session_config: tf.compat.v1.ConfigProto,
    ) -> None:
        self._session_config = session_config
        self._idle: ModelSession | None = None
        self._lock = threading.Lock()
        with tf.Graph().as_default() as self.graph:
            self.outputs = build(inputs.receive)
            self._check()
            self._add_initializers()
        self._analyze(inputs.placeholders)
        self.feeds = [each.name for each in self.used_of(inputs.placeholders)]

    def _check(self) -> None:
        scaffold = self.outputs.scaffold
        if type(scaffold) is not tf1.train.Scaffold:
            raise CannotReuse(f"its Scaffold is a {type(scaffold).__name__}")
        given = savers.parts_of_user(scaffold)
        if given:
            raise CannotReuse(f"its Scaffold has a {given[0]}")
        for key in _OWN_INITIALIZERS:
            if self.graph.get_collection(key):
                raise CannotReuse(f"its graph has something in the collection {key!r}")
        saver = scaffold.saver
        if saver is not None and type(saver) is not tf1.train.Saver:
            raise CannotReuse(f"its Scaffold has a {type(saver).__name__} for a Saver")

    def _add_initializers(self) -> None:
        """Add what the Scaffold of an untouched graph adds, and finalize the graph."""
        self.reset = tf1.local_variables_initializer()
        self.local_init = tf1.train.Scaffold.default_local_init_op()
        self.ready = tf.concat(
            [
                tf1.report_uninitialized_variables(),
                graphs.report_uninitialized_resources(),
            ],
            0,
        )
        self.saver = self.outputs.scaffold.saver or savers.saver_of_graph()
        self.saver.build()
        tables = self.graph.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS)
        self._tables = tf.group(*tables) if tables else None
        self._has_local_resources = bool(graphs.local_resources())
        self.graph.finalize()

    def _analyze(self, fed: Sequence[tf.Tensor]) -> None:
        """Determine what state a session keeps between two calls."""
        outputs = self.outputs
        part = self._needed([outputs.results, outputs.update or []], [self.reset])
        if state.calls_python(self.graph, part):
            raise CannotReuse("its graph calls Python functions, which may keep state")
        if outputs.update is not None:
            self._check_update(outputs.update, [each.op.name for each in fed])
        self._used = [each.op.name in part for each in fed]
        if not any(self._used):
            raise CannotReuse("its results do not depend on the inputs")
        local = self.graph.get_collection(tf1.GraphKeys.LOCAL_VARIABLES)
        self.has_local_variables = bool(local)
        local_names = {name for v in local for name in state.variables_of([v.op])}
        changed = state.changed_variables(part) - local_names
        self.table_files = state.table_files(self._tables)
        self.is_stateless = (
            state.is_only_in_variables(self.graph, part)
            and not self._has_local_resources
            and self.table_files is not None
            and changed <= state.variables_of(self._restore_ops())
        )
        self.changes_variables = bool(changed)

    def _needed(
        self, fetches: Any, more: Sequence[tf.Operation] = ()
    ) -> dict[str, tf.Operation]:
        """Return the ops that a session runs for fetches and ops, by name."""
        handler = sessions.FetchHandler(self.graph, fetches, {})
        roots = [*(each.op for each in handler.fetches()), *handler.targets(), *more]
        return state.reached(roots)

    def _check_update(self, update: tf.Operation, fed: Sequence[str]) -> None:
        """Refuse metrics that one more call without a batch would change.

        TensorFlow calls them once more when it finds the data at its end. Here nothing
        is fed then.
        """
        if not self._needed(self.outputs.results).keys().isdisjoint(fed):
            raise CannotReuse("the value of a metric depends on the batch")
        part = state.reached([update])
        waiting = state.following(part, fed)
        early = [op for name, op in part.items() if name not in waiting]
        if acting := sorted(op.name for op in early if state.acts(op)):
            raise CannotReuse(
                f"a metric is updated by {acting[0]!r}, which does not depend on the "
                "batch"
            )

    def used_of(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return which tensors of the inputs the model needs.

        TensorFlow would not compute the others, which may fail, or end the data.
        """
        return [each for each, used in zip(tensors, self._used, strict=True) if used]

    def _restore_ops(self) -> list[tf.Operation]:
        name = self.saver.saver_def.restore_op_name if self.saver.saver_def else ""
        return [self.graph.get_operation_by_name(name)] if name else []

    @contextlib.contextmanager
    def session(self, checkpoint: str) -> Iterator[ModelSession]:
        """Return a session that holds the values of a checkpoint, for one call.

        Args:
            checkpoint: The prefix of the checkpoint's files.

        Raises:
            CannotReuse: If the checkpoint cannot be restored into the graph.
        """
        try:
            session = self._ready_session(checkpoint)
        except Exception as error:
            raise CannotReuse(
                "the checkpoint cannot be restored into the kept graph: "
                f"{first_line(error)}"
            ) from error
        is_as_new = False
        try:
            yield session
            is_as_new = self.is_stateless
        except GeneratorExit:  # a prediction that nobody reads any further
            is_as_new = self.is_stateless
            raise
        finally:
            if is_as_new:
                self._exchange(session)
            else:
                session.raw.close()

    def _ready_session(self, checkpoint: str) -> ModelSession:
        """Return the idle session, or a new one, with the values of a checkpoint."""
        files = [identity(name) for name in self.table_files or ()]
        session = self._exchange(None)
        is_new = session is None or session.table_files != files or None in files
        if session is None or is_new:
            raw = tf1.Session(graph=self.graph, config=self._session_config)
            session = ModelSession(raw, self.outputs, self.feeds, files)
        holds = checkpoint_identity(checkpoint)
        if holds is None or holds != session.holds or self.changes_variables:
            with self.graph.as_default():
                self.saver.restore(session.raw, checkpoint)
            session.holds = holds
        if is_new:
            session.raw.run(self.local_init)
            missing = session.raw.run(self.ready)
            if missing.size:
                raise tf.errors.FailedPreconditionError(
                    None, None, f"not initialized: {missing.tolist()}"
                )
        elif self.has_local_variables:
            session.raw.run(self.reset)
        return session

    def _exchange(self, session: ModelSession | None) -> ModelSession | None:
        """Keep a session for the next call, and return the one that was kept before."""
        with self._lock:
            found, self._idle = self._idle, session
        return found


class ModelSession:
    """A session of a model, which holds the values of a checkpoint.

    It does not refer to the model: a session that nobody refers to is closed at once.

    Args:
        raw: The session.
        outputs: What the model computes.
        feeds: The names of the placeholders for a batch.
        table_files: The identities of the files that its tables are read from.

    Attributes:
        raw: As given.
        outputs: As given.
        table_files: As given.
        holds: Identifies the checkpoint; None if that is not known.
    """

    def __init__(
        self,
        raw: tf.compat.v1.Session,
        outputs: Outputs,
        feeds: Sequence[str],
        table_files: Sequence[Identity | None],
    ) -> None:
        self.raw, self.outputs, self.table_files = raw, outputs, table_files
        self.holds: tuple[str, Identity] | None = None
        self._feeds = feeds
        self._calls: dict[Any, tuple[Any, Callable[..., Any]]] = {}

    def update(self, batch: Sequence[Any]) -> None:
        """Run what the graph does for a batch.

        Args:
            batch: Values for the tensors of the inputs.
        """
        self._call(self.outputs.update, batch)

    def results(self, batch: Sequence[Any] | None = None, names: Any = None) -> Any:
        """Return the results, of a batch or of all that has been updated.

        Args:
            batch: Values for the tensors of the inputs, or None.
            names: Keys of the results that are asked for; None for all.
        """
        wanted = self.outputs.results
        if names is not None:
            wanted = {name: wanted[name] for name in names}
        if batch is None:
            return self.raw.run(wanted)
        return self._call(wanted, batch, None if names is None else tuple(names))

    def _call(self, fetches: Any, batch: Sequence[Any], key: Any = None) -> Any:
        if key not in self._calls:  # parsing takes most of `Session.run`
            handler = sessions.FetchHandler(self.raw.graph, fetches, {})
            tensors = [tensor.name for tensor in handler.fetches()]
            targets = [op.name for op in handler.targets()]
            call = sessions.compile_call(self.raw, self._feeds, tensors, targets)
            self._calls[key] = handler, call
        handler, call = self._calls[key]
        return handler.build_results(self.raw, call(*map(to_feed, batch)))


def checkpoint_identity(checkpoint: str) -> tuple[str, Identity] | None:
    """Return a value that changes when a checkpoint is replaced.

    Returns:
        None if there is no such value, as for a checkpoint on remote storage.
    """
    index = index_identity(os.fsdecode(checkpoint))
    return None if index is None else (checkpoint, index)
