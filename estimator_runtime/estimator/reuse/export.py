"""A graph that is exported, and the session whose variables go into its SavedModels."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import tensorflow as tf

from estimator_runtime.estimator.reuse.inputs import CannotReuse, static_shape
from estimator_runtime.estimator.reuse.model import checkpoint_identity
from estimator_runtime.tf_internals import internals

tf1 = tf.compat.v1
_SEQUENCES = (list, tuple)
_COMPOSITES = (tf.SparseTensor, tf.RaggedTensor)
# How far ahead of the clock the name of an export may be. Enough for a few evaluations
# in a row, and gone before another process is likely to export to the same folder.
_MAX_SECS_AHEAD = 5
# As often as TensorFlow.
_MAX_WAITS = 10


def next_export_dir(
    base: str | bytes,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> bytes | None:
    """Return the folder for an export, which is named after the next free second.

    TensorFlow sleeps for a second where the current one is taken. This function takes
    the second after the newest export that it finds, up to five seconds ahead of the
    clock, and sleeps only beyond that. So later exports have larger numbers, as ever.

    Args:
        base: The folder of the exports; it need not exist.
        clock: Returns the seconds since the epoch.
        sleep: Called with the seconds to sleep.

    Returns:
        The path, or None if no second was free in ten attempts.
    """
    folder = tf.compat.as_bytes(base)
    for attempt in range(_MAX_WAITS):
        if attempt:
            sleep(1)
        now = int(clock())
        taken = [each for each in _export_seconds(folder) if each >= now]
        # What is further ahead was named by another clock; TensorFlow ignores it too.
        near = [each for each in taken if each <= now + _MAX_SECS_AHEAD]
        second = max(near, default=now - 1) + 1
        if second <= now + _MAX_SECS_AHEAD:
            return tf.io.gfile.join(folder, str(second).encode())
    return None


def _export_seconds(folder: bytes) -> list[int]:
    """Return the seconds that exports in a folder are named after, unfinished too."""
    try:
        names = tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        return []
    # Object stores list folders with a slash at the end.
    found = (re.fullmatch(r"(?:temp-)?(\d+)/?", tf.compat.as_str(n)) for n in names)
    return [int(each[1]) for each in found if each]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exportable:
    """What an export writes, as far as the checkpoint does not change it.

    Attributes:
        saver: Restores and saves the variables.
        local_init_op: What a session that loads the SavedModel runs, or None.
        train_op: The train_op of an exported training, or None.
        signature_def_map: `SignatureDef` by key.
    """

    saver: tf.compat.v1.train.Saver
    local_init_op: tf.Operation | None
    train_op: Any
    signature_def_map: dict[str, Any]


class ExportGraph:
    """A graph that is exported, of one mode and one input_receiver_fn.

    Args:
        graph: The graph.
        parts: What it has for an export.
        session_config: Configuration of its session.

    Attributes:
        graph: The graph.
        parts: What it has for an export.
    """

    def __init__(
        self,
        graph: tf.Graph,
        parts: Exportable,
        session_config: tf.compat.v1.ConfigProto,
    ) -> None:
        self.graph = graph
        self.parts = parts
        self._collections = {
            key: graph.get_collection(key) for key in graph.get_all_collection_keys()
        }
        self._session_config = session_config
        self._session: tf.compat.v1.Session | None = None
        self._holds: Hashable = None
        self._is_closed = False
        # An export adds to the collections of the graph, so they take turns.
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def session(self) -> Iterator[tf.compat.v1.Session]:
        """Return a session for one export; the graph is the default graph in it.

        What the export adds to the collections of the graph is taken out at its end.
        """
        with self._lock:
            if self._session is None:
                self._session = tf1.Session(
                    graph=self.graph, config=self._session_config
                )
            try:
                with self.graph.as_default():
                    yield self._session
            finally:
                for key in self.graph.get_all_collection_keys():
                    self.graph.clear_collection(key)
                for key, values in self._collections.items():
                    self.graph.get_collection_ref(key).extend(values)
                if self._is_closed:
                    self.close()

    def restore(self, session: tf.compat.v1.Session, checkpoint: str) -> None:
        """Restore the variables of a session, if they are not those of a checkpoint."""
        identity = checkpoint_identity(checkpoint)
        if identity is None or identity != self._holds:
            self._holds = None
            self.parts.saver.restore(session, checkpoint)
            self._holds = identity

    def close(self) -> None:
        """Close the session, after the export that uses it."""
        with self._lock:
            self._is_closed = True
            if self._session is not None:
                self._session.close()
            self._session = self._holds = None


def receiver_key(graph: tf.Graph, receiver: Any) -> Hashable:
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
        tuple(_described(getattr(receiver, name, None)) for name in names),
        collections,
        graph.seed,
        internals.seeds_drawn(graph),
        graph.as_graph_def().SerializeToString(deterministic=True),
    )


def _described(value: Any) -> Hashable:
    kind = type(value)
    if value is None:
        return None
    if isinstance(value, dict):
        return kind, tuple((name, _described(each)) for name, each in value.items())
    if isinstance(value, _SEQUENCES):
        return kind, tuple(map(_described, value))
    if isinstance(value, _COMPOSITES):
        parts = tf.nest.flatten(value, expand_composites=True)
        return tf.type_spec_from_value(value), tuple(map(_described, parts))
    if isinstance(value, tf.Tensor) and hasattr(value, "op"):
        return value.name, value.dtype, static_shape(value)
    raise CannotReuse(f"input_receiver_fn returns a {kind.__name__}")
