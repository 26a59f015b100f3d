"""Modules and names of TensorFlow 1.15 that `tf.contrib` uses, and where they are now.

"{keras}" stands for the package that has Keras 2. The names that `tf1.moved` restores
for everybody are not repeated here.
"""

from typing import Any

_TF = "tensorflow.python"
_V1 = "tensorflow.compat.v1"
_CELLS = "{keras}.src.layers.rnn.legacy_cells"
_CORE = "tensorflow.contrib._core"
_COMPAT = "estimator_runtime.tf1.contrib.compat"


def _names(source: str, names: str) -> dict[str, Any]:
    """Return entries for names that are the same in their source."""
    return {name: f"{source}{name}" for name in names.split()}


def _gone(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split())


# Whole folders, where the module exists there; where not, it has its old name.
FOLDERS = {
    f"{_TF}.keras": "{keras}.src",
    f"{_TF}.layers": "{keras}.src.legacy_tf_layers",
    f"{_TF}.training.tracking": f"{_TF}.trackable",
    "tensorflow_estimator.contrib": "tensorflow.contrib._estimator",
}

# Modules, and their names today; None for what is gone.
MODULES: dict[str, str | None] = {
    f"{_TF}.data.experimental.ops.threadpool": f"{_CORE}.threadpool",
    f"{_TF}.distribute.all_reduce": f"{_CORE}.all_reduce",
    f"{_TF}.distribute.distribution_strategy_context": (
        f"{_TF}.distribute.distribute_lib"
    ),
    f"{_TF}.eager.execution_callbacks": f"{_CORE}.execution_callbacks",
    f"{_TF}.keras": "{keras}",
    f"{_TF}.keras.engine.training_arrays": None,
    f"{_TF}.layers.utils": f"{_TF}.layers.utils",
    f"{_TF}.ops.distributions.transformed_distribution": (
        f"{_CORE}.transformed_distribution"
    ),
    f"{_TF}.profiler.profile_context": f"{_CORE}.profile_context",
    f"{_TF}.tpu.profiler": None,
    f"{_TF}.training.tracking.tracking": f"{_TF}.trackable.autotrackable",
    f"{_TF}.training.tracking.util": f"{_TF}.checkpoint.checkpoint",
    "tensorflow.core.framework.remote_fused_graph_execute_info_pb2": None,
    "tensorflow.tools.graph_transforms": None,
    "tensorflow_estimator.python.estimator.canned.boosted_trees": None,
}

_CELL_WRAPPERS = _names(
    f"{_V1}:nn.rnn_cell.", "DeviceWrapper DropoutWrapper ResidualWrapper"
)
_CELL_CLASSES = (
    "BasicLSTMCell BasicRNNCell GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell"
)
# Names in modules, by the module: "module:attribute", the object itself, or None for
# what is gone.
NAMES: dict[str, dict[str, Any]] = {
    f"{_TF}.data.ops.iterator_ops": {
        "IteratorV2": f"{_TF}.data.ops.iterator_ops:OwnedIterator"
    },
    f"{_TF}.distribute.input_lib": {
        "DatasetIterator": f"{_TF}.distribute.v1.input_lib:DatasetIterator"
    },
    f"{_TF}.distribute.parameter_server_strategy": {
        "ParameterServerStrategy": (
            f"{_TF}.distribute.parameter_server_strategy:ParameterServerStrategyV1"
        )
    },
    f"{_TF}.eager.context": {"list_devices": "tensorflow:config.list_logical_devices"},
    f"{_TF}.eager.function": {"defun": "tensorflow:function"},
    f"{_TF}.framework.common_shapes": {"call_cpp_shape_fn": f"{_COMPAT}:do_nothing"},
    f"{_TF}.framework.load_library": _names(f"{_COMPAT}:", "load_op_library"),
    f"{_TF}.framework.ops": {
        "register_dense_tensor_like_type": f"{_COMPAT}:do_nothing",
        **_names(f"{_COMPAT}:", "RegisterGradient RegisterShape"),
    },
    f"{_TF}.keras.engine.training_arrays": _gone("test_loop"),
    f"{_TF}.keras.engine.training_utils": _gone(
        "batch_shuffle check_num_samples has_symbolic_tensors"
    ),
    f"{_TF}.ops.random_ops": {"random_crop": f"{_TF}.ops.random_crop_ops:random_crop"},
    f"{_TF}.ops.rnn_cell": {
        **_names(f"{_V1}:nn.rnn_cell.", _CELL_CLASSES),
        **_CELL_WRAPPERS,
    },
    f"{_TF}.ops.rnn_cell_impl": {
        **_names(f"{_CELLS}:", f"{_CELL_CLASSES} LayerRNNCell"),
        **_CELL_WRAPPERS,
    },
    f"{_TF}.ops.summary_ops_v2": _gone("create_db_writer"),
    f"{_TF}.ops.variable_scope": {"variable": f"{_COMPAT}:variable"},
    f"{_TF}.pywrap_tensorflow": _gone(
        "DeleteStatSummarizer NewStatSummarizer StatSummarizer"
    ),
    f"{_TF}.tpu.tpu": {
        "_TPU_REPLICATE_ATTR": f"{_TF}.tpu.tpu_replication:_TPU_REPLICATE_ATTR"
    },
    f"{_TF}.tpu.tpu_strategy_util": {
        "initialize_tpu_system": "tensorflow:tpu.experimental.initialize_tpu_system"
    },
    f"{_TF}.training.monitored_session": {
        # So contrib.learn's Estimators and slim train in this runtime's session.
        "MonitoredTrainingSession": (
            "estimator_runtime.session.monitored_training_session:"
            "MonitoredTrainingSession"
        )
    },
    f"{_TF}.training.tracking.tracking": {
        "TrackableResource": f"{_TF}.trackable.resource:TrackableResource"
    },
    f"{_TF}.training.tracking.util": {
        "list_objects": f"{_TF}.checkpoint.util:list_objects",
        **_names(
            f"{_TF}.checkpoint.checkpoint:", "object_metadata capture_dependencies"
        ),
    },
    f"{_TF}.util.all_util": {"remove_undocumented": f"{_COMPAT}:remove_undocumented"},
    "tensorflow.core.framework.remote_fused_graph_execute_info_pb2": _gone(
        "RemoteFusedGraphExecuteInfo"
    ),
    "tensorflow.tools.graph_transforms": _gone("TransformGraph"),
    "tensorflow_estimator.python.estimator.canned.boosted_trees": _gone(
        "_BoostedTreesBase _HOLD_FOR_MULTI_CLASS_SUPPORT _HOLD_FOR_MULTI_DIM_SUPPORT "
        "BoostedTreesClassifier BoostedTreesRegressor"
    ),
}

# Modules of `tf.contrib` that other modules stand for.
_STRATEGIES = (
    "collective_all_reduce_strategy",
    "mirrored_strategy",
    "one_device_strategy",
    "parameter_server_strategy",
)
REPLACED = {
    **{
        f"distribute.python.{name}": "estimator_runtime.tf1.contrib.distribute"
        for name in _STRATEGIES
    },
    "keras": "tensorflow.compat.v1.keras",
    # At their places before 1.15.
    "estimator.python.estimator.hooks": "tensorflow.contrib.estimator",
    "framework.python.ops.audio_ops": f"{_TF}.ops.gen_audio_ops",
    "keras.python.keras": "tensorflow.compat.v1.keras",
    "lookup.python.ops.lookup_ops": "tensorflow.contrib.lookup.lookup_ops",
    "rnn.python.ops.core_rnn": "tensorflow.contrib.rnn",
    "summary.summary_ops": "tensorflow.contrib.summary.summary",
    "learn.python.learn.estimators.run_config": "estimator_runtime.contrib.learn",
    "tpu.proto": "tensorflow.core.protobuf.tpu",
}

# Folders of `tf.contrib` before 1.15, and where their modules are that have left it.
FORMER_FOLDERS = {
    "distributions.python.ops.": f"{_TF}.ops.distributions.",
    "tpu.proto.": "tensorflow.core.protobuf.tpu.",
}

# Names that tf-slim has in its package, and 1.15.5 in a module below it only.
MODULES_BELOW = {
    "framework.arg_scope_func_key": "framework.python.ops.arg_scope",
    "layers.adaptive_clipping_fn": "layers.python.layers.optimizers",
    "layers.bucketize": "layers.python.ops.bucketization_op",
    "layers.poincare_normalize": "layers.python.layers.layers",
    "layers.pool": "layers.python.layers.layers",
    "predictor.Predictor": "predictor.predictor",
}

# Lines of `tf.contrib` that are different today, by module: (old, new).
CHANGED_LINES: dict[str, tuple[tuple[str, str], ...]] = {
    "factorization.python.ops.gmm_ops": (
        ("variables.VariableV1(init_value,", "variable_scope.variable(init_value,"),
        (
            "variables.VariableV1(\n        init_value,",
            "variable_scope.variable(\n        init_value,",
        ),
    ),
    "graph_editor.transform": (
        ("tf_ops.Operation(node_def_,", "tf_ops.Operation.from_node_def(node_def_,"),
    ),
    # The launcher's TF_CONFIG names a chief and no environment, and each task has to
    # start its server.
    "learn.python.learn.experiment": (
        (
            "if (config.environment != run_config.Environment.LOCAL and\n          ",
            "if (",
        ),
    ),
    "learn.python.learn.learn_runner": (
        (
            "elif config.task_type == run_config_lib.TaskType.WORKER:",
            "elif config.task_type in ('chief', run_config_lib.TaskType.WORKER):",
        ),
    ),
    # A variable decays when its gradient has been computed. In 1.15.5 that is a race,
    # which the gradient wins nine times in ten; here it would mostly lose it.
    "opt.python.training.weight_decay_optimizers": (
        (
            "control_dependencies([self._decay_weights_op(var)])",
            "control_dependencies([grad]), "
            "ops.control_dependencies([self._decay_weights_op(var)])",
        ),
        (
            "decay_op = self._decay_weights_sparse_op(var, grad.indices, scatter_add)",
            "with ops.control_dependencies([grad.values]): decay_op = "
            "self._decay_weights_sparse_op(var, grad.indices, scatter_add)",
        ),
        (
            "decay_op = self._decay_weights_sparse_op(var, indices, scatter_add)",
            "with ops.control_dependencies([grad]): decay_op = "
            "self._decay_weights_sparse_op(var, indices, scatter_add)",
        ),
    ),
    "timeseries.python.timeseries.math_utils": (
        (
            "raw_values += array_ops.matrix_diag(",
            "raw_values = raw_values + array_ops.matrix_diag(",
        ),
    ),
}
