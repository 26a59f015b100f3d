"""A patch that makes Estimators export with graphs that they keep.

The frozen Estimator calls input_receiver_fn and model_fn in a new graph for each mode
of each export. With the option `reuse_graphs`, input_receiver_fn is still called in a
new graph. If that graph is the one of an export before, node by node, then so is what
model_fn would add to it. So the graph of that export is written again, with the
variables of another checkpoint.

Such an export takes less than a second, which is what TensorFlow names exports after.
So the next one takes the next free second, where TensorFlow would wait for it.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as frozen_estimator

from estimator_runtime.estimator.reuse import graphs
from estimator_runtime.estimator.reuse.export import (
    Exportable,
    ExportGraph,
    next_export_dir,
    receiver_key,
)
from estimator_runtime.estimator.reuse.inputs import CannotReuse
from estimator_runtime.patching import patch

tf1 = tf.compat.v1
_PREDICT = tf.estimator.ModeKeys.PREDICT
# What the functions here call, or do the work of.
_MEMBERS = (
    "_add_meta_graph_for_mode",
    "_call_model_fn",
    "_create_and_assert_global_step",
    "_create_global_step",
)
# Whether the export under way is one of an Estimator that reuses graphs.
_is_reusing = contextvars.ContextVar("_is_reusing", default=False)


def patch_estimator(_module: ModuleType) -> None:
    """Patch Estimators, so that those with `reuse_graphs` export with kept graphs."""
    cls = frozen_estimator.Estimator
    cls._add_meta_graph_for_mode = _exporting(cls._add_meta_graph_for_mode)
    cls._export_all_saved_models = _marking(cls._export_all_saved_models)
    export_lib = frozen_estimator.export_lib
    export_lib.get_timestamped_export_dir = _naming(
        export_lib.get_timestamped_export_dir
    )


def _marking(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_export_all_saved_models`, which names the folder of its export."""

    @functools.wraps(original)
    def export_all_saved_models(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _is_reusing.set(graphs.cache_of(self) is not None)
        try:
            return original(self, *args, **kwargs)
        finally:
            _is_reusing.reset(token)

    return export_all_saved_models


def _naming(original: Callable[..., bytes]) -> Callable[..., bytes]:
    """Wrap `get_timestamped_export_dir`."""

    @functools.wraps(original)
    def get_timestamped_export_dir(export_dir_base: str | bytes) -> bytes:
        found = next_export_dir(export_dir_base) if _is_reusing.get() else None
        return original(export_dir_base) if found is None else found

    return get_timestamped_export_dir


def _exporting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `_add_meta_graph_for_mode`."""
    bind = patch.binder(original)

    @functools.wraps(original)
    def add_meta_graph_for_mode(self: Any, *args: Any, **kwargs: Any) -> None:
        call = bind(self, *args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        cache = graphs.cache_of(self)
        if cache is None or not given["check_variables"]:
            return original(*call.args, **call.kwargs)
        reason = graphs.own_member(self, _MEMBERS)
        if reason is not None:
            cache.log_refusal("export", reason)
            return original(*call.args, **call.kwargs)
        mode = given["mode"]
        with tf.Graph().as_default() as graph:
            self._create_and_assert_global_step(graph)
            tf1.random.set_random_seed(self._config.tf_random_seed)
            receiver = given["input_receiver_fn_map"][mode]()
            make = functools.partial(_build, self, graph, receiver, mode)
            try:
                key = (
                    "export",
                    mode,
                    receiver_key(graph, receiver),
                    cache.shapes(given["checkpoint_path"]),
                    graphs.model_key(self),
                )
            except CannotReuse as reason:
                cache.log_refusal("export", reason)
                with contextlib.closing(make()) as export:
                    _write(export, mode, given)
            else:
                _write(cache.graph(key, make), mode, given)

    return add_meta_graph_for_mode


def _build(self: Any, graph: tf.Graph, receiver: Any, mode: str) -> ExportGraph:
    """Add the model to the graph of its inputs, as `_add_meta_graph_for_mode` does."""
    export_lib = frozen_estimator.export_lib
    spec = self._call_model_fn(
        features=receiver.features,
        labels=getattr(receiver, "labels", None),
        mode=mode,
        config=self.config,
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
        serving_only=(mode == _PREDICT),
    )
    scaffold = spec.scaffold
    local_init_op = scaffold.local_init_op
    if local_init_op is None:
        local_init_op = tf1.train.Scaffold.default_local_init_op()
    if isinstance(scaffold.saver, frozen_estimator.trackable_util.Checkpoint):
        view = frozen_estimator.graph_view.ObjectGraphView(scaffold.saver)
        saver = tf1.train.Saver(var_list=view.frozen_saveable_objects(), sharded=True)
    else:
        saver = scaffold.saver or tf1.train.Saver(sharded=True)
    parts = Exportable(
        saver=saver,
        local_init_op=local_init_op,
        train_op=spec.train_op,
        signature_def_map=signature_def_map,
    )
    return ExportGraph(graph, parts, self._session_config)


def _write(export: ExportGraph, mode: str, given: Any) -> None:
    """Write a graph, as `_add_meta_graph_for_mode` does."""
    builder, checkpoint = given["builder"], given["checkpoint_path"]
    with export.session() as session:
        try:
            export.restore(session, checkpoint)
        except tf.errors.NotFoundError as error:
            raise ValueError(
                "Could not load all requested variables from checkpoint. "
                "Please make sure your model_fn does not expect variables "
                "that were not saved in the checkpoint.\n\n"
                f"Encountered error with mode `{mode}` while restoring "
                f"checkpoint from: `{checkpoint}`. Full Traceback:\n\n{error}"
            ) from error
        builder._add_train_op(export.parts.train_op)
        tags = given["export_tags"]
        if tags is None:
            tags = frozen_estimator.export_lib.EXPORT_TAG_MAP[mode]
        arguments = {
            "tags": tags,
            "signature_def_map": dict(export.parts.signature_def_map),
            "assets_collection": tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            "main_op": export.parts.local_init_op,
            "saver": export.parts.saver,
            "strip_default_attrs": given["strip_default_attrs"],
        }
        if given["save_variables"]:
            builder.add_meta_graph_and_variables(session, **arguments)
        else:
            builder.add_meta_graph(**arguments)
