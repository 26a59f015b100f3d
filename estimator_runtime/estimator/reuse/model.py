"""The graph of a model for one mode and structure of inputs, and its sessions.

A session belongs to one call at a time: an evaluation, or a prediction until its last
result. So two threads can use a model at once, and a prediction that is read by half
keeps the checkpoint that it began with.

A session that is kept must behave like a new one. It does if what is fetched changes
nothing but variables that a call sets again: those of a checkpoint, and local ones such
as those of metrics. Other graphs are kept too, and get a new session at each call.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.checkpoint.store import files
from estimator_runtime.estimator.reuse.inputs import CannotReuse, Inputs, to_feed
from estimator_runtime.loop.graph import op_kinds, ops
from estimator_runtime.loop.graph.subgraph import keeps_resource
from estimator_runtime.tf_internals import internals

tf1 = tf.compat.v1
# Idle sessions that a model keeps: enough for two threads.
_MAX_IDLE = 2
# Collections through which a graph has initializers of its own.
_OWN_INITIALIZERS = (
    tf1.GraphKeys.LOCAL_INIT_OP,
    tf1.GraphKeys.READY_OP,
    tf1.GraphKeys.READY_FOR_LOCAL_INIT_OP,
    "saved_model_initializers",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a call asks of the graph of a model.

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
        build: Adds the model to a graph. It takes the graph's features and labels, and
            the placeholders' graph is the default graph.
        begin: Adds what TensorFlow adds to a graph before the inputs.
        session_config: Configuration of its sessions.

    Attributes:
        is_stateless: Whether a session may serve several calls, one after the other.

    Raises:
        CannotReuse: If the model needs a graph of its own for each call.
    """

    def __init__(
        self,
        inputs: Inputs,
        begin: Callable[[tf.Graph], object],
        build: Callable[[Any, Any], Outputs],
        session_config: tf.compat.v1.ConfigProto,
    ) -> None:
        self._session_config = session_config
        self._idle: list[ModelSession] = []
        self._lock = threading.Lock()
        self._is_closed = False
        with tf.Graph().as_default() as self.graph:
            begin(self.graph)
            internals.set_seeds_drawn(self.graph, inputs.seeds_drawn)
            fed, features, labels = inputs.placeholders()
            self.outputs = build(features, labels)
            self._check()
            self._add_initializers()
        self._analyze(fed)
        self.feeds = [each.name for each in self.used_of(fed)]

    def _check(self) -> None:
        scaffold = self.outputs.scaffold
        if type(scaffold) is not tf1.train.Scaffold:
            raise CannotReuse(f"its Scaffold is a {type(scaffold).__name__}")
        given = internals.parts_of_user(scaffold)
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
                internals.report_uninitialized_resources(),
            ],
            0,
        )
        self.saver = self.outputs.scaffold.saver or internals.saver_of_graph()
        self.saver.build()
        tables = self.graph.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS)
        self._tables = tf.group(*tables) if tables else None
        self._has_local_resources = bool(internals.local_resources())
        self.graph.finalize()

    def _check_results(self, fed: Sequence[tf.Tensor]) -> None:
        if self.outputs.update is None:
            return
        results = internals.FetchHandler(self.graph, self.outputs.results, {})
        part = reached(tensor.op for tensor in results.fetches())
        if any(each.op.name in part for each in fed):
            raise CannotReuse("the value of a metric depends on the batch")

    def _check_update(self, fed: Sequence[tf.Tensor]) -> None:
        """Refuse an update that does something which waits for no tensor of a batch.

        TensorFlow also does that in the call that finds the data at its end, in which
        nothing is fed here.
        """
        update = reached([] if self.outputs.update is None else [self.outputs.update])
        waiting = following(update, [each.op.name for each in fed])
        early = [op for name, op in update.items() if name not in waiting]
        if acting := sorted(op.name for op in early if _acts(op)):
            raise CannotReuse(
                f"a metric is updated by {acting[0]!r}, which does not depend on the "
                "batch"
            )

    def _analyze(self, fed: Sequence[tf.Tensor]) -> None:
        """Find out what a session keeps between two calls."""
        used = internals.FetchHandler(
            self.graph, [self.outputs.results, self.outputs.update or []], {}
        )
        roots = [*(t.op for t in used.fetches()), *used.targets(), self.reset]
        part = reached(roots)
        if calls_python(self.graph, part):
            raise CannotReuse("its graph calls Python functions, which may keep state")
        self._check_results(fed)
        self._check_update(fed)
        self._used = [each.op.name in part for each in fed]
        if not any(self._used):
            raise CannotReuse("its results do not depend on the inputs")
        restore = self._restore_ops()
        local = self.graph.get_collection(tf1.GraphKeys.LOCAL_VARIABLES)
        local_names = {name for v in local for name in variables_of([v.op])}
        changed = changed_variables(part) - local_names
        self.table_files = table_files(self._tables)
        self.is_stateless = (
            is_only_in_variables(self.graph, part)
            and not self._has_local_resources
            and self.table_files is not None
            and changed <= variables_of(restore)
        )
        self.changes_variables = bool(changed)

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
            tf.errors.OpError: If the checkpoint does not fit the graph.
        """
        session = self._taken()
        try:
            if session is None or not session.is_current():
                if session is not None:
                    session.close()
                session = ModelSession(self, self._session_config, checkpoint)
            else:
                session.take(checkpoint)
        except BaseException:
            if session is not None:
                session.close()
            raise
        is_done = False
        try:
            yield session
            is_done = True
        except GeneratorExit:
            is_done = True  # a prediction that nobody reads any further
            raise
        finally:
            self._return(session, is_done)

    def _taken(self) -> ModelSession | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _return(self, session: ModelSession, is_sound: bool) -> None:
        with self._lock:
            keeps = is_sound and self.is_stateless and not self._is_closed
            keeps = keeps and len(self._idle) < _MAX_IDLE
            if keeps:
                self._idle.append(session)
        if not keeps:
            session.close()

    def close(self) -> None:
        """Close the idle sessions now, and the others when their calls end."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()


class ModelSession:
    """A session of a model, which holds the values of a checkpoint.

    Args:
        model: The model.
        config: Configuration of the session.
        checkpoint: The prefix of the checkpoint's files.

    Raises:
        tf.errors.OpError: If the checkpoint does not fit the graph.
    """

    def __init__(
        self, model: Model, config: tf.compat.v1.ConfigProto, checkpoint: str
    ) -> None:
        self._model = model
        self._calls: dict[Any, Any] = {}
        self._files = self._table_files()
        self.raw = tf1.Session(graph=model.graph, config=config)
        try:
            self._restore(checkpoint)
            self.raw.run(model.local_init)
            missing = self.raw.run(model.ready)
            if missing.size:
                raise tf.errors.FailedPreconditionError(
                    None, None, f"not initialized: {missing.tolist()}"
                )
        except BaseException:
            self.raw.close()
            raise

    def is_current(self) -> bool:
        """Return whether the files of its tables are those that it has read."""
        return self._files is not None and self._files == self._table_files()

    def take(self, checkpoint: str) -> None:
        """Hold the values of a checkpoint, and initialize local variables again."""
        identity = checkpoint_identity(checkpoint)
        if identity is None or identity != self._holds or self._model.changes_variables:
            self._restore(checkpoint)
        self.raw.run(self._model.reset)

    def _restore(self, checkpoint: str) -> None:
        self._holds = checkpoint_identity(checkpoint)
        with self._model.graph.as_default():
            self._model.saver.restore(self.raw, checkpoint)

    def _table_files(self) -> list[files.Identity | None] | None:
        names = self._model.table_files or []
        found = [files.identity(name) for name in names]
        return None if None in found else found

    def update(self, batch: Sequence[Any]) -> None:
        """Run what the graph does for a batch.

        Args:
            batch: Values for the tensors of the inputs.
        """
        self._call(self._model.outputs.update, batch)

    def results(self, batch: Sequence[Any] | None = None, names: Any = None) -> Any:
        """Return the results, of a batch or of all that has been updated.

        Args:
            batch: Values for the tensors of the inputs, or None.
            names: Keys of the results that are asked for; None for all.
        """
        wanted = self._model.outputs.results
        if names is not None:
            wanted = {name: wanted[name] for name in names}
        if batch is None:
            return self.raw.run(wanted)
        return self._call(wanted, batch, None if names is None else tuple(names))

    def _call(self, fetches: Any, batch: Sequence[Any], key: Any = None) -> Any:
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _BatchCall(self.raw, self._model.feeds, fetches)
        return call(batch)

    def close(self) -> None:
        """Close the session."""
        self._calls.clear()
        self.raw.close()


class _BatchCall:
    """What is run for a batch, compiled once: the feeds take most of `Session.run`."""

    def __init__(
        self, session: tf.compat.v1.Session, feeds: Sequence[str], fetches: Any
    ) -> None:
        self._session = session
        self._handler = internals.FetchHandler(session.graph, fetches, {})
        self._run = internals.compile_call(
            session,
            feeds,
            [tensor.name for tensor in self._handler.fetches()],
            [op.name for op in self._handler.targets()],
        )

    def __call__(self, batch: Sequence[Any]) -> Any:
        values = self._run(*map(to_feed, batch))
        return self._handler.build_results(self._session, values)


def checkpoint_identity(checkpoint: str) -> tuple[str, files.Identity] | None:
    """Return what tells whether a checkpoint has been replaced.

    Returns:
        None if that cannot be said, as of one on remote storage.
    """
    index = files.index_identity(os.fsdecode(checkpoint))
    return None if index is None else (checkpoint, index)


def reached(operations: Iterable[tf.Operation]) -> dict[str, tf.Operation]:
    """Return ops and all that they need, by name."""
    found: dict[str, tf.Operation] = {}
    pending = list(operations)
    while pending:
        op = pending.pop()
        if op.name not in found:
            found[op.name] = op
            pending.extend(tensor.op for tensor in op.inputs)
            pending.extend(op.control_inputs)
    return found


def following(part: Mapping[str, tf.Operation], first: Iterable[str]) -> set[str]:
    """Return the names of ops, some of `part`, and of all in it that need them."""
    users = collections.defaultdict(list)
    for name, op in part.items():
        for before in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
            users[before.name].append(name)
    found: set[str] = set()
    pending = list(first)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(users[name])
    return found


def calls_python(graph: tf.Graph, part: Mapping[str, tf.Operation]) -> bool:
    """Return whether ops call functions of the program, which may keep any state.

    Args:
        graph: The graph.
        part: The ops by name. The functions that they call are looked at too.
    """
    return any(e.kind.calls_python for e in ops.executed(graph, part.values()))


def is_only_in_variables(graph: tf.Graph, part: Mapping[str, tf.Operation]) -> bool:
    """Return whether ops keep no state in a session but that of variables.

    Args:
        graph: The graph.
        part: The ops by name. The functions that they call are looked at too.
    """
    return all(
        each.kind.leaves_session_as_new or each.kind.is_free_of_state
        for each in ops.executed(graph, part.values())
    )


def changed_variables(part: Mapping[str, tf.Operation]) -> set[str]:
    """Return the names of the ops that make the variables which ops may change."""
    return {
        maker
        for op in part.values()
        for tensor in _changed_inputs(op)
        for maker in _makers(tensor)
    }


def _changed_inputs(op: tf.Operation) -> list[tf.Tensor]:
    if any(argument.is_ref for argument in op.op_def.input_arg):
        return [tensor for tensor in op.inputs if internals.is_reference(tensor)]
    kind = op_kinds.of(op.type)
    if kind.passes_handle_on or kind.is_of_table:
        return []
    handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    return handles if handles and ops.may_write(op) else []


def _acts(op: tf.Operation) -> bool:
    """Return whether an op may change a variable, or has another effect or state."""
    if _changed_inputs(op):
        return True
    is_harmless = not op.op_def.is_stateful or keeps_resource(op)
    return not is_harmless and not is_only_in_variables(op.graph, {op.name: op})


def _makers(tensor: tf.Tensor) -> set[str]:
    """Return the names of the ops of variables among those that give a tensor."""
    return variables_of([tensor.op])


def variables_of(operations: Iterable[tf.Operation]) -> set[str]:
    """Return the names of the ops that make the variables which ops use."""
    found = reached(operations)
    return {n for n, op in found.items() if op_kinds.of(op.type).is_variable}


def table_files(initializer: tf.Operation | None) -> list[str] | None:
    """Return the files that tables are initialized from.

    Args:
        initializer: The op that initializes all tables, or None if there is none.

    Returns:
        Their names; None if a table may come from something else than constants and
        files.
    """
    names = []
    for op in reached([] if initializer is None else [initializer]).values():
        kind = op_kinds.of(op.type)
        if kind.initializes_table:
            if "File" in op.type:
                name = tf.get_static_value(op.inputs[1])
                if name is None:
                    return None
                names.append(
                    os.fsdecode(name.item() if hasattr(name, "item") else name)
                )
        elif not (kind.is_table or kind.is_free_of_state):
            return None
    return sorted(names)
