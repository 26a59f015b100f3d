"""Names of `tf.contrib` that TensorFlow has under another name.

They exist without the original. With it, they are added where 1.15.5 had removed them.
Names have no leading `tf.contrib.`, and are given by their shortest spelling:
`tpu.python.tpu.tpu_config.TPUConfig` is `tpu.TPUConfig`.
"""

import importlib.util
from typing import Any

from estimator_runtime.tf1.contrib import wheel

_V1 = "tensorflow.compat.v1"
_PYTHON = "tensorflow.python"
_OURS = "estimator_runtime.tf1.contrib.distribute"
_LEARN = "estimator_runtime.contrib.learn"
# Whole modules of tpu.python.tpu are in one of these packages.
_TPU = (f"{_PYTHON}.tpu", "tensorflow_estimator.python.estimator.tpu")

# Names that are the same in their source: (module, source, names).
_SAME = (
    (
        "cluster_resolver",
        f"{_V1}:distribute.cluster_resolver.",
        "ClusterResolver GCEClusterResolver KubernetesClusterResolver "
        "SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver "
        "TPUClusterResolver",
    ),
    (
        "data",
        f"{_V1}:data.experimental.",
        "AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset Optional "
        "OptionalStructure RandomDataset Reducer SparseTensorStructure SqlDataset "
        "Structure TFRecordWriter TensorStructure bucket_by_sequence_length "
        "choose_from_datasets copy_to_device dense_to_sparse_batch enumerate_dataset "
        "get_next_as_optional get_single_element group_by_reducer group_by_window "
        "ignore_errors make_batched_features_dataset make_csv_dataset "
        "make_saveable_from_iterator map_and_batch parallel_interleave "
        "parse_example_dataset prefetch_to_device rejection_resample "
        "sample_from_datasets scan shuffle_and_repeat unbatch unique",
    ),
    (
        "data",
        f"{_V1}:data.",
        "Dataset FixedLengthRecordDataset Iterator TFRecordDataset TextLineDataset",
    ),
    (
        "distribute",
        f"{_OURS}:",
        "CollectiveAllReduceStrategy MirroredStrategy ParameterServerStrategy",
    ),
    (
        "distribute",
        f"{_V1}:distribute.",
        "CrossDeviceOps HierarchicalCopyAllReduce NcclAllReduce OneDeviceStrategy "
        "ReductionToOneDevice StrategyExtended get_loss_reduction get_replica_context "
        "get_strategy has_strategy in_cross_replica_context",
    ),
    (
        "estimator",
        f"{_V1}:estimator.experimental.",
        "InMemoryEvaluatorHook LinearSDCA build_raw_supervised_input_receiver_fn "
        "call_logit_fn dnn_logit_fn_builder linear_logit_fn_builder "
        "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook "
        "stop_if_no_decrease_hook stop_if_no_increase_hook",
    ),
    (
        "estimator",
        f"{_V1}:estimator.",
        "DNNEstimator DNNLinearCombinedEstimator LinearEstimator add_metrics",
    ),
    (
        "framework",
        f"{_V1}:train.",
        "assert_global_step create_global_step get_global_step "
        "get_or_create_global_step init_from_checkpoint list_variables "
        "load_checkpoint load_variable",
    ),
    ("learn", f"{_LEARN}:", "ClusterConfig Environment RunConfig TaskType"),
    ("learn", f"{_V1}:estimator.", "ModeKeys"),
    (
        "lookup",
        f"{_PYTHON}.ops.lookup_ops:",
        "IdTableWithHashBuckets KeyValueTensorInitializer MutableHashTable "
        "TextFileIdTableInitializer TextFileIndex TextFileInitializer "
        "TextFileStringTableInitializer index_table_from_file "
        "index_to_string_table_from_file",
    ),
    (
        "rnn",
        f"{_V1}:nn.rnn_cell.",
        "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell "
        "LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
    ),
    (
        "rnn",
        f"{_V1}:nn.",
        "static_bidirectional_rnn static_rnn static_state_saving_rnn",
    ),
    (
        "summary",
        f"{_PYTHON}.ops.summary_ops_v2:",
        "SummaryWriter always_record_summaries audio create_file_writer "
        "create_summary_file_writer eval_dir generic histogram image import_event "
        "initialize never_record_summaries record_summaries_every_n_global_steps "
        "scalar summary_writer_initializer_op",
    ),
    (
        "tpu",
        f"{_V1}:estimator.tpu.",
        "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
    ),
    (
        "tpu",
        f"{_V1}:tpu.",
        "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum "
        "initialize_system outside_compilation replicate rewrite shard shutdown_system",
    ),
    ("training", f"{_V1}:train.", "checkpoints_iterator"),
    ("util", f"{_V1}:", "make_ndarray make_tensor_proto"),
)
SUCCESSORS: dict[str, str] = {
    **{
        f"{module}.{name}": f"{source}{name}"
        for module, source, names in _SAME
        for name in names.split()
    },
    "cluster_resolver.GceClusterResolver": (
        f"{_V1}:distribute.cluster_resolver.GCEClusterResolver"
    ),
    "distribute.ReductionToOneDeviceCrossDeviceOps": (
        f"{_V1}:distribute.ReductionToOneDevice"
    ),
    "distribute.DistributionStrategy": f"{_V1}:distribute.Strategy",
    "distribute.get_distribution_strategy": f"{_V1}:distribute.get_strategy",
    "distribute.has_distribution_strategy": f"{_V1}:distribute.has_strategy",
    "estimator.make_stop_at_checkpoint_step_hook": (
        "tensorflow_estimator.python.estimator.hooks.hooks:"
        "make_stop_at_checkpoint_step_hook"
    ),
    "framework.CriticalSection": f"{_V1}:CriticalSection",
    "summary.all_summary_ops": f"{_V1}:summary.all_v2_summary_ops",
    "tpu.BatchConfig": f"{_TPU[1]}.tpu_estimator:BatchConfig",
    "tpu.DeviceAssignment": f"{_V1}:tpu.experimental.DeviceAssignment",
    "tpu.TPUContext": f"{_TPU[1]}.tpu_context:TPUContext",
    "tpu.Topology": f"{_V1}:tpu.experimental.Topology",
    "util.constant_value": f"{_V1}:get_static_value",
}
_MODULES = {name.partition(".")[0] for name in SUCCESSORS}


def is_module(path: str) -> bool:
    """Return whether a path is that of a module with such names.

    The longest are like tpu.python.tpu.tpu_config.
    """
    folder, *rest = path.split(".")
    return folder in _MODULES and len(rest) <= 3 and rest[:1] in ([], ["python"])


def is_member(path: str, name: str) -> bool:
    """Return whether a module has such a name."""
    return f"{path.partition('.')[0]}.{name}" in SUCCESSORS


def has(path: str) -> bool:
    """Return whether a path leads to such a name, by any of its spellings."""
    parts = path.split(".")
    return is_module(path) or any(f"{parts[0]}.{part}" in SUCCESSORS for part in parts)


def names(path: str) -> list[str]:
    """Return the names in a module, or the modules for the path ""."""
    if not path:
        return sorted(_MODULES)
    prefix = f"{path.partition('.')[0]}."
    return sorted(n.removeprefix(prefix) for n in SUCCESSORS if n.startswith(prefix))


def find(path: str, name: str) -> Any:
    """Return the object that TensorFlow has for a name in a module.

    Raises:
        AttributeError: If there is none.
    """
    source = SUCCESSORS.get(f"{path.partition('.')[0]}.{name}")
    if source is not None:
        module_name, _, attribute = source.partition(":")
        value: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            value = getattr(value, part)
        return value
    for package in _TPU if path.startswith("tpu.python.tpu.") else ():
        module_name = f"{package}.{path.rpartition('.')[2]}"
        if importlib.util.find_spec(module_name) is not None:
            module = importlib.import_module(module_name)
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"TensorFlow has no other name for tf.contrib.{path}.{name}")


def find_or_advise(path: str, name: str) -> Any:
    """Return the same where the original is not installed.

    Raises:
        AttributeError: If the name needs the original; the text says how to install it.
    """
    try:
        return find(path, name)
    except AttributeError:
        full = ".".join(filter(None, [path, name]))
        raise AttributeError(
            f"tf.contrib.{full} is of the original tf.contrib, which is not installed; "
            f"install it with: {wheel.COMMAND}"
        ) from None
