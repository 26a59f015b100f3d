"""Exports with graphs that the Estimator keeps.

The frozen Estimator calls input_receiver_fn and model_fn in a new graph for each mode
of each export. With the option `reuse_graphs`, input_receiver_fn is still called in a
new graph. If that graph is the one of an export before, node by node, then so is what
model_fn would add to it. So the frozen method ends there, and the graph of that export
is written again, with the variables of another checkpoint.

TensorFlow names exports after the second, and sleeps where a name is taken. With graphs
that are kept, several exports may begin in one second. So no export of any Estimator
sleeps, unless the names get too far ahead of the clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as frozen

from estimator_runtime.estimator.reuse.cache import GraphCache, IsKept
from estimator_runtime.estimator.reuse.inputs import CannotReuse, described
from estimator_runtime.estimator.reuse.keys import model_key
from estimator_runtime.estimator.reuse.model import checkpoint_identity
from estimator_runtime.tf_internals import graphs

tf1 = tf.compat.v1

# How far ahead of the clock the name of an export may be. Enough for a few evaluations
# in a row, and gone before another process is likely to export to the same folder.
_MAX_SECS_AHEAD = 5
# The last second that this process gave to an export in each folder.
_last: dict[bytes, int] = {}


def patch_names() -> None:
    """Name exports without waiting for the clock, unless there are many."""
    frozen.export_lib.get_timestamped_export_dir = _next_export_dir


def _next_export_dir(export_dir_base: str | bytes) -> bytes:
    """Return the folder of a new export, named after the first free second.

    TensorFlow sleeps until that second. The name is larger than those of earlier
    exports, also of unfinished ones, and of those of this process that were moved or
    deleted since.
    """
    folder = tf.compat.as_bytes(export_dir_base)
    while True:
        now = int(time.time())
        names = tf.io.gfile.listdir(folder) if tf.io.gfile.exists(folder) else []
        # Object stores list folders with a slash at the end.
        found = (tf.compat.as_str(n).rstrip("/").removeprefix("temp-") for n in names)
        seconds = [int(name) for name in found if name.isdecimal()]
        seconds.append(_last.get(folder, 0))
        # What is further ahead was named by another clock; TensorFlow ignores it too.
        near = (each for each in seconds if now <= each <= now + _MAX_SECS_AHEAD)
        second = max(near, default=now - 1) + 1
        if second <= now + _MAX_SECS_AHEAD:
            _last[folder] = second
            return tf.io.gfile.join(folder, str(second).encode())
        time.sleep(max(now + 1 - time.time(), 0))


def add_meta_graph(
    estimator: Any,
    cache: GraphCache,
    export: Callable[[Any, Any], None],
    builder: Any,
    input_receiver_fn: Any,
    checkpoint: str,
    save_variables: bool,
    mode: str,
    options: Hashable,
) -> None:
    """Export one mode from a kept graph, or by the frozen method, whose graph is kept.

    Args:
        estimator: The Estimator.
        cache: Its cache.
        export: The frozen method; takes a builder and an input_receiver_fn.
        builder: The builder of the SavedModel.
        input_receiver_fn: That of the mode.
        checkpoint: The checkpoint that is exported.
        save_variables: Whether its values are written.
        mode: The mode.
        options: What else the frozen method is told.
    """
    key: Hashable = None

    def receive() -> Any:
        nonlocal key
        receiver = input_receiver_fn()
        try:
            if cache.is_default and mode == frozen.ModeKeys.TRAIN:
                raise CannotReuse("the optimizer may have another learning rate now")
            inputs = _key(tf1.get_default_graph(), receiver)
            shapes = cache.shapes(checkpoint)
            key = ("export", mode, options, inputs, shapes, model_key(estimator))
        except CannotReuse as reason:
            cache.log_refusal("export", reason)
            return receiver
        kept = cache.find(key)
        if kept is not None:
            raise IsKept(kept)
        return receiver

    new = _KeptExport(builder, estimator._session_config)
    try:
        export(new, receive)
    except IsKept as error:
        kept = error.kept
    else:
        if key is not None:
            cache.keep(key, new)
        return
    try:
        kept.write(builder, checkpoint if save_variables else None)
    except tf.errors.NotFoundError:  # which the frozen method explains
        export(builder, input_receiver_fn)


class _KeptExport:
    """What the frozen method gives to the builder of a SavedModel, for later ones too.

    Args:
        builder: The builder of the first SavedModel, to which it is passed on.
        session_config: Configuration of the session for the later ones.
    """

    def __init__(self, builder: Any, session_config: tf.compat.v1.ConfigProto) -> None:
        self._builder, self._session_config = builder, session_config
        self._session: tf.compat.v1.Session | None = None
        self._restored: Hashable = None
        self._lock = threading.Lock()

    # The methods of a builder that the frozen method calls.

    def _add_train_op(self, train_op: Any) -> None:
        self._train_op = train_op

    def add_meta_graph(self, **arguments: Any) -> None:
        self.add_meta_graph_and_variables(None, **arguments)

    def add_meta_graph_and_variables(
        self, session: tf.compat.v1.Session | None, **arguments: Any
    ) -> None:
        self._arguments, self._graph = arguments, tf1.get_default_graph()
        self._collections = {
            key: self._graph.get_collection(key)
            for key in self._graph.get_all_collection_keys()
        }
        builder, self._builder = self._builder, None
        self._pass_to(builder, session)

    def write(self, builder: Any, checkpoint: str | None) -> None:
        """Write the graph again.

        Args:
            builder: The builder of another SavedModel.
            checkpoint: The checkpoint whose values are written; None for no values.
        """
        with self._lock, self._graph.as_default():
            session = None if checkpoint is None else self._session_of(checkpoint)
            self._pass_to(builder, session)

    def _session_of(self, checkpoint: str) -> tf.compat.v1.Session:
        if self._session is None:
            config = self._session_config
            self._session = tf1.Session(graph=self._graph, config=config)
        identity = checkpoint_identity(checkpoint)
        if identity is None or identity != self._restored:
            self._restored = None
            self._arguments["saver"].restore(self._session, checkpoint)
            self._restored = identity
        return self._session

    def _pass_to(self, builder: Any, session: tf.compat.v1.Session | None) -> None:
        """Pass everything to a builder, and remove what it adds to the collections."""
        # The builder adds to the dict.
        signatures = dict(self._arguments["signature_def_map"])
        arguments = {**self._arguments, "signature_def_map": signatures}
        try:
            builder._add_train_op(self._train_op)
            if session is None:
                builder.add_meta_graph(**arguments)
            else:
                builder.add_meta_graph_and_variables(session, **arguments)
        finally:
            for key in self._graph.get_all_collection_keys():
                self._graph.clear_collection(key)
            for key, values in self._collections.items():
                self._graph.get_collection_ref(key).extend(values)


def _key(graph: tf.Graph, receiver: Any) -> Hashable:
    """Return a key that is equal for equal inputs of an export.

    Args:
        graph: The graph that has nothing but these inputs.
        receiver: What input_receiver_fn has returned.

    Raises:
        CannotReuse: If it has other than tensors.
    """
    names = ("features", "labels", "receiver_tensors", "receiver_tensors_alternatives")
    collections = tuple(
        (str(key), tuple(str(value) for value in graph.get_collection(key)))
        for key in graph.get_all_collection_keys()
    )
    return (
        type(receiver),
        tuple(described(getattr(receiver, n, None), _of_tensor) for n in names),
        collections,
        graph.seed,
        graphs.seeds_drawn(graph),
        graph.as_graph_def().SerializeToString(deterministic=True),
    )


def _of_tensor(value: Any) -> Hashable:
    if isinstance(value, tf.Tensor) and hasattr(value, "op"):
        return value.name, value.dtype, value.shape
    raise CannotReuse(f"input_receiver_fn returns a {type(value).__name__}")
