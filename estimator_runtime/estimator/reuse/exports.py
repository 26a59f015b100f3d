"""Exports with graphs that the Estimator keeps.

The frozen Estimator calls input_receiver_fn and model_fn in a new graph for each mode
of each export. With the option `reuse_graphs`, input_receiver_fn is still called in a
new graph. If that graph is the one of an export before, node by node, then so is what
model_fn would add to it. So the graph of that export is written again, with the
variables of another checkpoint.

Such an export takes less than a second, which is what TensorFlow names exports after.
So the next one takes the next second, as in TensorFlow, but does not wait for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Hashable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as frozen

from estimator_runtime.estimator.reuse.cache import GraphCache
from estimator_runtime.estimator.reuse.inputs import CannotReuse, static_shape
from estimator_runtime.estimator.reuse.keys import model_key
from estimator_runtime.estimator.reuse.model import checkpoint_identity
from estimator_runtime.tf_internals import graphs

tf1 = tf.compat.v1
_COMPOSITES = (tf.SparseTensor, tf.RaggedTensor)

# How far ahead of the clock the name of an export may be. Enough for a few evaluations
# in a row, and gone before another process is likely to export to the same folder.
_MAX_SECS_AHEAD = 5


def patch_names() -> None:
    """Give an export the name that TensorFlow would find by sleeping until it is free.

    Later exports have larger numbers, also if earlier ones are deleted. TensorFlow's
    way is taken if the names are too far ahead of the clock.
    """
    export_lib = frozen.export_lib
    stock = export_lib.get_timestamped_export_dir

    @functools.wraps(stock)
    def get_timestamped_export_dir(export_dir_base: str | bytes) -> bytes:
        folder, now = tf.compat.as_bytes(export_dir_base), int(time.time())
        names = tf.io.gfile.listdir(folder) if tf.io.gfile.exists(folder) else []
        # Object stores list folders with a slash at the end.
        found = (tf.compat.as_str(name).rstrip("/") for name in names)
        seconds = (int(name) for name in found if name.isdigit())
        # What is further ahead was named by another clock; TensorFlow ignores it too.
        near = (each for each in seconds if now <= each <= now + _MAX_SECS_AHEAD)
        second = max(near, default=now - 1) + 1
        if second > now + _MAX_SECS_AHEAD:
            return stock(export_dir_base)
        return tf.io.gfile.join(folder, str(second).encode())

    export_lib.get_timestamped_export_dir = get_timestamped_export_dir


def add_meta_graph(
    estimator: Any,
    cache: GraphCache,
    builder: Any,
    input_receiver_fn: Any,
    checkpoint: str,
    save_variables: bool,
    mode: str,
    export_tags: Any,
    strip_default_attrs: bool,
) -> None:
    """Do what `_add_meta_graph_for_mode` does, with a kept graph if possible."""
    if export_tags is None:
        export_tags = frozen.export_lib.EXPORT_TAG_MAP[mode]
    with tf.Graph().as_default() as graph:
        estimator._create_and_assert_global_step(graph)
        tf1.random.set_random_seed(estimator._config.tf_random_seed)
        receiver = input_receiver_fn()
        make = functools.partial(_build, estimator, graph, receiver, mode)
        key: Hashable = None
        try:
            if cache.is_default and mode == frozen.ModeKeys.TRAIN:
                raise CannotReuse("the optimizer may have another learning rate now")
            inputs, shapes = _key(graph, receiver), cache.shapes(checkpoint)
            key = ("export", mode, inputs, shapes, model_key(estimator))
        except CannotReuse as reason:
            cache.log_refusal("export", reason)
        export = make() if key is None else cache.graph(key, make)
        export.is_kept = key is not None
        with export.restored(checkpoint, mode) as session:
            builder._add_train_op(export.train_op)
            arguments = {
                "tags": export_tags,
                "signature_def_map": dict(export.signature_def_map),
                "assets_collection": tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
                "main_op": export.local_init_op,
                "saver": export.saver,
                "strip_default_attrs": strip_default_attrs,
            }
            if save_variables:
                builder.add_meta_graph_and_variables(session, **arguments)
            else:
                builder.add_meta_graph(**arguments)


def _build(estimator: Any, graph: tf.Graph, receiver: Any, mode: str) -> _ExportGraph:
    """Add the model to the graph of its inputs, as `_add_meta_graph_for_mode` does."""
    export_lib = frozen.export_lib
    spec = estimator._call_model_fn(
        features=receiver.features,
        labels=getattr(receiver, "labels", None),
        mode=mode,
        config=estimator.config,
    )
    export_outputs = export_lib.export_outputs_for_mode(
        mode=spec.mode,
        serving_export_outputs=spec.export_outputs,
        predictions=spec.predictions,
        loss=spec.loss,
        metrics=spec.eval_metric_ops,
    )
    signature_def_map = export_lib.build_all_signature_defs(
        receiver.receiver_tensors,
        export_outputs,
        getattr(receiver, "receiver_tensors_alternatives", None),
        serving_only=(mode == frozen.ModeKeys.PREDICT),
    )
    scaffold = spec.scaffold
    local_init_op = scaffold.local_init_op
    if local_init_op is None:
        local_init_op = tf1.train.Scaffold.default_local_init_op()
    saver = scaffold.saver
    if isinstance(saver, frozen.trackable_util.Checkpoint):
        view = frozen.graph_view.ObjectGraphView(saver)
        saver = tf1.train.Saver(var_list=view.frozen_saveable_objects(), sharded=True)
    return _ExportGraph(
        graph=graph,
        session_config=estimator._session_config,
        saver=saver or tf1.train.Saver(sharded=True),
        local_init_op=local_init_op,
        train_op=spec.train_op,
        signature_def_map=signature_def_map,
    )


@dataclasses.dataclass(kw_only=True, eq=False)
class _ExportGraph:
    """A graph that is exported, of a mode and an input_receiver_fn, and its session.

    Attributes:
        graph: The graph.
        session_config: Configuration of its session.
        saver: Restores and saves the variables.
        local_init_op: What a session that loads the SavedModel runs.
        train_op: The train_op of an exported training, or None.
        signature_def_map: `SignatureDef` by key.
        is_kept: Whether the session stays open after an export.
    """

    graph: tf.Graph
    session_config: tf.compat.v1.ConfigProto
    saver: tf.compat.v1.train.Saver
    local_init_op: tf.Operation
    train_op: Any
    signature_def_map: dict[str, Any]
    is_kept: bool = True

    def __post_init__(self) -> None:
        """Remember the collections, to which an export adds."""
        self._collections = {
            key: self.graph.get_collection(key)
            for key in self.graph.get_all_collection_keys()
        }
        self._session: tf.compat.v1.Session | None = None
        self._restored: Hashable = None
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def restored(self, checkpoint: str, mode: str) -> Iterator[tf.compat.v1.Session]:
        """Return a session with a checkpoint's values, for one export.

        The graph is the default graph in this context. What the export adds to the
        collections of the graph is taken out at its end.

        Raises:
            ValueError: If the checkpoint lacks a variable, as in TensorFlow.
        """
        with self._lock:
            if self._session is None:
                self._session = tf1.Session(
                    graph=self.graph, config=self.session_config
                )
            try:
                with self.graph.as_default():
                    self._restore(self._session, checkpoint, mode)
                    yield self._session
            finally:
                for key in self.graph.get_all_collection_keys():
                    self.graph.clear_collection(key)
                for key, values in self._collections.items():
                    self.graph.get_collection_ref(key).extend(values)
                if not self.is_kept:
                    self.close()

    def _restore(
        self, session: tf.compat.v1.Session, checkpoint: str, mode: str
    ) -> None:
        identity = checkpoint_identity(checkpoint)
        if identity is not None and identity == self._restored:
            return
        self._restored = None
        try:
            self.saver.restore(session, checkpoint)
        except tf.errors.NotFoundError as error:
            raise ValueError(
                "Could not load all requested variables from checkpoint. "
                "Please make sure your model_fn does not expect variables "
                "that were not saved in the checkpoint.\n\n"
                f"Encountered error with mode `{mode}` while restoring "
                f"checkpoint from: `{checkpoint}`. Full Traceback:\n\n{error}"
            ) from error
        self._restored = identity

    def close(self) -> None:
        """Close the session now, or when the export that uses it ends."""
        self.is_kept = False
        # An export that looks at `is_kept` just now leaves it to the garbage collector.
        if self._lock.acquire(blocking=False):
            try:
                if self._session is not None:
                    self._session.close()
                self._session = self._restored = None
            finally:
                self._lock.release()


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
        tuple(_described(getattr(receiver, name, None)) for name in names),
        collections,
        graph.seed,
        graphs.seeds_drawn(graph),
        graph.as_graph_def().SerializeToString(deterministic=True),
    )


def _described(value: Any) -> Hashable:
    kind = type(value)
    if value is None:
        return None
    if isinstance(value, dict):
        return kind, tuple((name, _described(each)) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return kind, tuple(map(_described, value))
    if isinstance(value, _COMPOSITES):
        parts = tf.nest.flatten(value, expand_composites=True)
        return tf.type_spec_from_value(value), tuple(map(_described, parts))
    if isinstance(value, tf.Tensor) and hasattr(value, "op"):
        return value.name, value.dtype, static_shape(value)
    raise CannotReuse(f"input_receiver_fn returns a {kind.__name__}")
