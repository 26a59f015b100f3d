"""The names of `tf.contrib` that exist here, and what became of those that don't.

Plain data, read by the importer of TensorFlow 1 mode, by docs/contrib.md and by the
tests. Names are written as in TensorFlow 1.15, without the leading `tf.contrib.`.
"""

from estimator_runtime.tf1.contrib_names import CONTRIB_MODULES

_TF = "tensorflow.compat.v1"
_PRIVATE = "estimator_runtime.estimator.removed.contrib"
_OURS = "estimator_runtime.contrib"
_TREES = "the package ydf or TensorFlow Decision Forests, which have no Estimators"


def _table(module: str, source: str, names: str) -> dict[str, str]:
    """Return the entries of one module whose names are the same in their source.

    Args:
        module: Name of the module under `tf.contrib`.
        source: "module:" or "module:prefix." in which the names are found.
        names: The names, separated by white space.
    """
    return {f"{module}.{name}": f"{source}{name}" for name in names.split()}


def _absent(module: str, names: str, was: str, use: str) -> dict[str, str]:
    """Return the entries of `MISSING` for names that share one explanation."""
    return {f"{module}.{name}": f"it was {was}; use {use}" for name in names.split()}


# Where each name is: "module:attribute", or "module" for a whole module. The module is
# imported at the first use of the name.
AVAILABLE: dict[str, str] = {
    **CONTRIB_MODULES,
    "batching.batch_function": f"{_TF}:nondifferentiable_batch_function",
    # cluster_resolver
    "cluster_resolver.GceClusterResolver": (
        f"{_TF}:distribute.cluster_resolver.GCEClusterResolver"
    ),
    "cluster_resolver.UnionClusterResolver": (
        f"{_TF}:distribute.cluster_resolver.UnionResolver"
    ),
    **_table(
        "cluster_resolver",
        f"{_TF}:distribute.cluster_resolver.",
        "ClusterResolver GCEClusterResolver KubernetesClusterResolver "
        "SimpleClusterResolver SlurmClusterResolver TFConfigClusterResolver "
        "TPUClusterResolver",
    ),
    "compiler.jit.experimental_jit_scope": f"{_TF}:xla.experimental.jit_scope",
    # crf
    **_table(
        "crf",
        f"{_OURS}.sequence.crf:",
        "crf_binary_score crf_decode crf_log_likelihood crf_log_norm "
        "crf_multitag_sequence_score crf_sequence_score crf_unary_score "
        "viterbi_decode",
    ),
    # data
    **_table(
        "data",
        f"{_TF}:data.experimental.",
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
    **_table(
        "data",
        f"{_TF}:data.",
        "Dataset FixedLengthRecordDataset Iterator TFRecordDataset TextLineDataset",
    ),
    **_table(
        "data",
        f"{_OURS}.data:",
        "assert_element_shape batch_and_drop_remainder "
        "padded_batch_and_drop_remainder sloppy_interleave",
    ),
    # distribute
    "distribute.CollectiveAllReduceStrategy": (
        f"{_OURS}.distribute:MultiWorkerAllReduceStrategy"
    ),
    "distribute.MirroredStrategy": f"{_OURS}.distribute:ContribMirroredStrategy",
    "distribute.OneDeviceStrategy": f"{_TF}:distribute.OneDeviceStrategy",
    "distribute.ParameterServerStrategy": (
        f"{_OURS}.distribute:ContribParameterServerStrategy"
    ),
    "distribute.ReductionToOneDeviceCrossDeviceOps": (
        f"{_TF}:distribute.ReductionToOneDevice"
    ),
    "distribute.DistributeConfig": f"{_PRIVATE}:DistributeConfig",
    "distribute.run_standard_tensorflow_server": (
        f"{_PRIVATE}:run_standard_tensorflow_server"
    ),
    **_table(
        "distribute",
        f"{_TF}:distribute.",
        "CrossDeviceOps HierarchicalCopyAllReduce NcclAllReduce ReductionToOneDevice "
        "StrategyExtended get_loss_reduction get_replica_context get_strategy "
        "has_strategy in_cross_replica_context",
    ),
    "distribute.DistributionStrategy": f"{_TF}:distribute.Strategy",
    "distribute.get_distribution_strategy": f"{_TF}:distribute.get_strategy",
    "distribute.has_distribution_strategy": f"{_TF}:distribute.has_strategy",
    # eager
    "eager.Checkpoint": f"{_TF}:train.Checkpoint",
    "eager.GradientTape": f"{_TF}:GradientTape",
    "eager.Variable": f"{_PRIVATE}:ResourceVariable",
    "eager.gradients_function": f"{_PRIVATE}:gradients_function",
    "eager.implicit_gradients": f"{_PRIVATE}:implicit_grad",
    "eager.implicit_value_and_gradients": f"{_PRIVATE}:implicit_val_and_grad",
    "eager.in_eager_mode": f"{_TF}:executing_eagerly",
    "eager.num_gpus": f"{_PRIVATE}:num_gpus",
    "eager.py_func": f"{_TF}:py_function",
    "eager.value_and_gradients_function": f"{_PRIVATE}:val_and_grad_function",
    **_table("eager", f"{_TF}:", "enable_eager_execution executing_eagerly"),
    # estimator
    **_table(
        "estimator",
        f"{_TF}:estimator.experimental.",
        "InMemoryEvaluatorHook LinearSDCA "
        "build_raw_supervised_input_receiver_fn call_logit_fn dnn_logit_fn_builder "
        "linear_logit_fn_builder make_early_stopping_hook "
        "stop_if_higher_hook stop_if_lower_hook "
        "stop_if_no_decrease_hook stop_if_no_increase_hook",
    ),
    **_table(
        "estimator",
        f"{_PRIVATE}:",
        "RNNClassifier RNNEstimator SavedModelEstimator "
        "build_supervised_input_receiver_fn_from_input_fn "
        "make_stop_at_checkpoint_step_hook",
    ),
    **_table(
        "estimator",
        f"{_TF}:estimator.",
        "DNNEstimator DNNLinearCombinedEstimator LinearEstimator",
    ),
    **_table(
        "estimator",
        f"{_OURS}.estimator:",
        "binary_classification_head clip_gradients_by_norm forward_features "
        "logistic_regression_head multi_class_head multi_head multi_label_head "
        "poisson_regression_head regression_head replicate_model_fn",
    ),
    "estimator.TowerOptimizer": f"{_OURS}.estimator:tower_optimizer",
    "estimator.add_metrics": f"{_TF}:estimator.add_metrics",
    # framework
    **_table(
        "framework",
        f"{_TF}:",
        "CriticalSection TensorSpec argsort is_tensor sort",
    ),
    "framework.BoundedTensorSpec": f"{_PRIVATE}:BoundedTensorSpec",
    "framework.smart_cond": f"{_PRIVATE}:smart_cond",
    "framework.smart_constant_value": f"{_PRIVATE}:smart_constant_value",
    **_table(
        "framework",
        f"{_TF}:train.",
        "assert_global_step create_global_step get_global_step "
        "get_or_create_global_step init_from_checkpoint list_variables "
        "load_checkpoint load_variable",
    ),
    **_table(
        "framework",
        "tf_slim:",
        "add_arg_scope arg_scope arg_scope_func_key arg_scoped_arguments "
        "current_arg_scope has_arg_scope",
    ),
    **_table(
        "framework",
        "tf_slim.ops.variables:",
        "VariableDeviceChooser add_model_variable assert_or_get_global_step "
        "assign_from_checkpoint assign_from_checkpoint_fn assign_from_values "
        "assign_from_values_fn filter_variables get_local_variables "
        "get_model_variables get_trainable_variables get_unique_variable "
        "get_variable_full_name get_variables get_variables_by_name "
        "get_variables_by_suffix get_variables_to_restore global_variable "
        "local_variable model_variable variable",
    ),
    **_table(
        "framework",
        "tf_slim.ops.framework_ops:",
        "get_graph_from_inputs get_name_scope",
    ),
    **_table(
        "framework",
        f"{_PRIVATE}:",
        "assert_same_float_dtype assert_scalar convert_to_tensor_or_sparse_tensor "
        "deprecated deprecated_arg_values deprecated_args "
        "remove_squeezable_dimensions",
    ),
    # image
    **_table(
        "image",
        f"{_OURS}.image:",
        "angles_to_projective_transforms compose_transforms rotate transform translate "
        "translations_to_projective_transforms",
    ),
    # keras
    "keras": f"{_TF}.keras",
    # layers
    **_table(
        "layers",
        "tf_slim.layers:",
        "GDN adaptive_clipping_fn apply_regularization avg_pool2d avg_pool3d "
        "batch_norm bias_add conv1d conv2d conv2d_in_plane conv2d_transpose conv3d "
        "conv3d_transpose convolution convolution1d convolution2d "
        "convolution2d_in_plane convolution2d_transpose convolution3d "
        "convolution3d_transpose dense_to_sparse dropout elu flatten "
        "fully_connected gdn group_norm images_to_sequence instance_norm "
        "l1_l2_regularizer l1_regularizer l2_regularizer layer_norm "
        "legacy_fully_connected legacy_linear legacy_relu linear "
        "max_pool2d max_pool3d maxout "
        "one_hot_encoding optimize_loss pool relu relu6 repeat scale_gradient "
        "separable_conv2d separable_convolution2d sequence_to_images softmax "
        "spatial_softmax stack sum_regularizer summarize_activation "
        "summarize_activations summarize_collection summarize_tensor "
        "summarize_tensors unit_norm variance_scaling_initializer "
        "xavier_initializer xavier_initializer_conv2d",
    ),
    "layers.OPTIMIZER_CLS_NAMES": "tf_slim.layers.optimizers:OPTIMIZER_CLS_NAMES",
    "layers.OPTIMIZER_SUMMARIES": "tf_slim.layers.optimizers:OPTIMIZER_SUMMARIES",
    "layers.bucketize": "tf_slim.layers.bucketization_op:bucketize",
    "layers.poincare_normalize": "tf_slim.layers.layers:poincare_normalize",
    "layers.recompute_grad": "tf_slim.layers.rev_block_lib:recompute_grad",
    "layers.rev_block": "tf_slim.layers.rev_block_lib:rev_block",
    "layers.safe_embedding_lookup_sparse": f"{_TF}:nn.safe_embedding_lookup_sparse",
    **_table(
        "layers",
        f"{_OURS}.sequence.embedding:",
        "embed_sequence embedding_lookup_unique",
    ),
    "layers.utils": "tf_slim.layers.utils",
    # learn
    **_table(
        "learn", f"{_OURS}.learn:", "ClusterConfig Environment RunConfig TaskType"
    ),
    "learn.Estimator": f"{_OURS}.learning.estimator:LearnEstimator",
    "learn.ModeKeys": f"{_OURS}.learning.estimator:LearnModeKeys",
    **_table(
        "learn",
        f"{_OURS}.learning.estimator:",
        "MetricSpec ModelFnOps ProblemType",
    ),
    "learn.estimators.RunConfig": f"{_OURS}.learn:RunConfig",
    "learn.estimators.constants.ProblemType": (
        f"{_OURS}.learning.estimator:ProblemType"
    ),
    "learn.monitors.replace_monitors_with_hooks": (
        f"{_OURS}.learning.estimator:replace_monitors_with_hooks"
    ),
    **_table(
        "learn",
        f"{_OURS}.learning.experiment:",
        "Experiment ExportStrategy InputFnOps build_parsing_serving_input_fn "
        "make_export_strategy",
    ),
    "learn.export_strategy.ExportStrategy": (
        f"{_OURS}.learning.experiment:ExportStrategy"
    ),
    "learn.learn_runner.run": f"{_OURS}.learning.experiment:run",
    **_table(
        "learn.utils",
        f"{_OURS}.learning.experiment:",
        "InputFnOps build_parsing_serving_input_fn make_export_strategy",
    ),
    **_table(
        "learn.io",
        f"{_TF}:estimator.inputs.",
        "numpy_input_fn pandas_input_fn",
    ),
    # lookup
    "lookup.HashTable": f"{_PRIVATE}:ContribHashTable",
    "lookup.MutableDenseHashTable": f"{_PRIVATE}:DenseHashTable",
    **_table(
        "lookup",
        f"{_PRIVATE}:",
        "IdTableWithHashBuckets KeyValueTensorInitializer LookupInterface "
        "MutableHashTable TextFileIdTableInitializer "
        "TextFileIndex TextFileInitializer TextFileStringTableInitializer "
        "index_table_from_file index_table_from_tensor "
        "index_to_string_table_from_file index_to_string_table_from_tensor",
    ),
    # losses
    **_table(
        "losses",
        "tf_slim.losses:",
        "absolute_difference add_loss compute_weighted_loss cosine_distance "
        "get_losses get_regularization_losses get_total_loss hinge_loss log_loss "
        "mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy "
        "softmax_cross_entropy sparse_softmax_cross_entropy",
    ),
    "losses.metric_learning": "tf_slim.losses.metric_learning",
    # metrics
    **_table(
        "metrics",
        "tf_slim.metrics:",
        "accuracy aggregate_metric_map aggregate_metrics auc_using_histogram "
        "auc_with_confidence_intervals cohen_kappa count f1_score "
        "precision_at_recall precision_recall_at_equal_thresholds "
        "recall_at_precision sparse_recall_at_top_k streaming_accuracy "
        "streaming_auc streaming_concat streaming_covariance "
        "streaming_curve_points streaming_dynamic_auc "
        "streaming_false_negative_rate streaming_false_negative_rate_at_thresholds "
        "streaming_false_negatives streaming_false_negatives_at_thresholds "
        "streaming_false_positive_rate streaming_false_positive_rate_at_thresholds "
        "streaming_false_positives streaming_false_positives_at_thresholds "
        "streaming_mean streaming_mean_absolute_error "
        "streaming_mean_cosine_distance streaming_mean_iou "
        "streaming_mean_relative_error streaming_mean_squared_error "
        "streaming_mean_tensor streaming_pearson_correlation "
        "streaming_percentage_less streaming_precision "
        "streaming_precision_at_thresholds streaming_recall streaming_recall_at_k "
        "streaming_recall_at_thresholds streaming_root_mean_squared_error "
        "streaming_sensitivity_at_specificity "
        "streaming_sparse_average_precision_at_k "
        "streaming_sparse_average_precision_at_top_k "
        "streaming_sparse_precision_at_k streaming_sparse_precision_at_top_k "
        "streaming_sparse_recall_at_k streaming_specificity_at_sensitivity "
        "streaming_true_negatives streaming_true_negatives_at_thresholds "
        "streaming_true_positives streaming_true_positives_at_thresholds",
    ),
    "metrics.confusion_matrix": f"{_TF}:confusion_matrix",
    "metrics.set_difference": f"{_TF}:sets.set_difference",
    "metrics.set_intersection": f"{_TF}:sets.set_intersection",
    "metrics.set_size": f"{_TF}:sets.set_size",
    "metrics.set_union": f"{_TF}:sets.set_union",
    # opt
    **_table(
        "opt",
        f"{_OURS}.opt:",
        "AdamWOptimizer DecoupledWeightDecayExtension LazyAdamOptimizer "
        "MomentumWOptimizer MovingAverageOptimizer extend_with_decoupled_weight_decay",
    ),
    # predictor
    **_table(
        "predictor",
        f"{_OURS}.predictor:",
        "Predictor from_estimator from_saved_model",
    ),
    # rnn
    **_table(
        "rnn",
        f"{_TF}:nn.rnn_cell.",
        "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell "
        "LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
    ),
    **_table(
        "rnn",
        f"{_TF}:nn.",
        "static_bidirectional_rnn static_rnn static_state_saving_rnn",
    ),
    **_table(
        "rnn",
        f"{_OURS}.sequence.rnn:",
        "FusedRNNCellAdaptor LSTMBlockCell LSTMBlockFusedCell LayerNormBasicLSTMCell "
        "OutputProjectionWrapper TimeReversedFusedRNN stack_bidirectional_dynamic_rnn "
        "stack_bidirectional_rnn transpose_batch_time",
    ),
    # seq2seq
    "seq2seq.sequence_loss": f"{_OURS}.sequence.seq2seq:sequence_loss",
    # slim: the package, and the modules of tf.contrib that it re-exported
    "slim": "tf_slim",
    "slim.nets": "tf_slim.nets",
    # summary
    "stateless.stateless_multinomial": f"{_TF}:random.stateless_multinomial",
    "stateless.stateless_random_normal": f"{_TF}:random.stateless_normal",
    "stateless.stateless_random_uniform": f"{_TF}:random.stateless_uniform",
    "stateless.stateless_truncated_normal": f"{_TF}:random.stateless_truncated_normal",
    "summary.all_summary_ops": f"{_TF}:summary.all_v2_summary_ops",
    "summary.graph": f"{_PRIVATE}:summary_ops_v2.graph_v1",
    "summary.flush": f"{_PRIVATE}:summary_ops_v2.legacy_raw_flush",
    "summary.should_record_summaries": (
        f"{_PRIVATE}:summary_ops_v2._legacy_contrib_should_record_summaries"
    ),
    "summary.initialize": f"{_TF}:summary.initialize",
    **_table(
        "summary",
        f"{_PRIVATE}:summary_ops_v2.",
        "SummaryWriter always_record_summaries audio create_file_writer "
        "create_summary_file_writer eval_dir generic histogram image "
        "import_event never_record_summaries record_summaries_every_n_global_steps "
        "scalar summary_writer_initializer_op",
    ),
    # tensorboard
    "tensorboard.plugins.projector": "tensorboard.plugins.projector",
    # tpu
    **_table(
        "tpu",
        f"{_TF}:estimator.tpu.",
        "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
    ),
    **_table(
        "tpu",
        f"{_TF}:tpu.",
        "CrossShardOptimizer batch_parallel bfloat16_scope core cross_replica_sum "
        "initialize_system outside_compilation replicate rewrite shard "
        "shutdown_system",
    ),
    "tpu.DeviceAssignment": f"{_TF}:tpu.experimental.DeviceAssignment",
    "tpu.Topology": f"{_TF}:tpu.experimental.Topology",
    **_table(
        "tpu",
        f"{_PRIVATE}:",
        "AsyncCheckpointSaverHook BatchConfig TPUContext device_assignment "
        "export_estimator_savedmodel repeat while_loop",
    ),
    # training
    **_table("training", f"{_OURS}.learning.hparams:", "HParams parse_values"),
    "training.checkpoints_iterator": f"{_TF}:train.checkpoints_iterator",
    **_table(
        "training",
        "tf_slim.training.training:",
        "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn "
        "create_train_op multiply_gradients train",
    ),
    **_table(
        "training",
        "tf_slim.training.evaluation:",
        "StopAfterNEvalsHook SummaryAtEndHook evaluate_once evaluate_repeatedly "
        "get_or_create_eval_step wait_for_new_checkpoint",
    ),
    # util
    "util.constant_value": f"{_TF}:get_static_value",
    **_table("util", f"{_TF}:", "make_ndarray make_tensor_proto"),
}

# Other spellings of modules: what stands there is that of the module named.
ALIASES: dict[str, str] = {
    "cluster_resolver.python.training": "cluster_resolver",
    "cluster_resolver.python.training.cluster_resolver": "cluster_resolver",
    "cluster_resolver.python.training.tpu_cluster_resolver": "cluster_resolver",
    "crf.python.ops.crf": "crf",
    "data.python.ops.batching": "data",
    "data.python.ops.grouping": "data",
    "data.python.ops.interleave_ops": "data",
    "data.python.ops.shuffle_ops": "data",
    "data.python.ops.sliding": "data",
    "data.python.ops.threadpool": "data",
    "distribute.python.mirrored_strategy": "distribute",
    "eager.python.datasets": "eager",
    "eager.python.tfe": "eager",
    "estimator.python.estimator.early_stopping": "estimator",
    "estimator.python.estimator.extenders": "estimator",
    "estimator.python.estimator.head": "estimator",
    "estimator.python.estimator.hooks": "estimator",
    "estimator.python.estimator.replicate_model_fn": "estimator",
    "framework.python.framework": "framework",
    "framework.python.framework.checkpoint_utils": "framework",
    "framework.python.framework.tensor_util": "framework",
    "framework.python.ops": "framework",
    "framework.python.ops.arg_scope": "framework",
    "framework.python.ops.variables": "framework",
    "image.python.ops.image_ops": "image",
    "keras.python.keras": "keras",
    "layers.python.layers": "layers",
    "layers.python.layers.embedding_ops": "layers",
    "layers.python.layers.encoders": "layers",
    "layers.python.layers.initializers": "layers",
    "layers.python.layers.layers": "layers",
    "layers.python.layers.normalization": "layers",
    "layers.python.layers.optimizers": "layers",
    "layers.python.layers.regularizers": "layers",
    "layers.python.layers.rev_block_lib": "layers",
    "layers.python.layers.summaries": "layers",
    "layers.python.layers.utils": "layers.utils",
    "learn.estimators.model_fn": "learn",
    "learn.estimators.run_config": "learn",
    "learn.experiment": "learn",
    "learn.metric_spec": "learn",
    "learn.python.learn": "learn",
    "learn.python.learn.estimators": "learn.estimators",
    "learn.python.learn.estimators.constants": "learn.estimators.constants",
    "learn.python.learn.estimators.estimator": "learn",
    "learn.python.learn.estimators.model_fn": "learn",
    "learn.python.learn.estimators.run_config": "learn",
    "learn.python.learn.experiment": "learn",
    "learn.python.learn.learn_io.numpy_io": "learn.io",
    "learn.python.learn.learn_io.pandas_io": "learn.io",
    "learn.python.learn.metric_spec": "learn",
    "learn.python.learn.utils.input_fn_utils": "learn.utils",
    "learn.python.learn.utils.saved_model_export_utils": "learn.utils",
    "learn.utils.input_fn_utils": "learn.utils",
    "learn.utils.saved_model_export_utils": "learn.utils",
    "lookup.lookup_ops": "lookup",
    "lookup.python.ops.lookup_ops": "lookup",
    "losses.python.losses": "losses",
    "losses.python.losses.loss_ops": "losses",
    "losses.python.metric_learning": "losses.metric_learning",
    "losses.python.metric_learning.metric_loss_ops": "losses.metric_learning",
    "metrics.python.ops.metric_ops": "metrics",
    "opt.python.training.lazy_adam_optimizer": "opt",
    "opt.python.training.moving_average_optimizer": "opt",
    "opt.python.training.weight_decay_optimizers": "opt",
    "predictor.predictor": "predictor",
    "predictor.predictor_factories": "predictor",
    "rnn.python.ops.core_rnn": "rnn",
    "rnn.python.ops.core_rnn_cell": "rnn",
    "rnn.python.ops.fused_rnn_cell": "rnn",
    "rnn.python.ops.lstm_ops": "rnn",
    "rnn.python.ops.rnn": "rnn",
    "rnn.python.ops.rnn_cell": "rnn",
    "seq2seq.python.ops.loss": "seq2seq",
    "slim.python.slim": "slim",
    "slim.python.slim.evaluation": "slim.evaluation",
    "slim.python.slim.learning": "slim.learning",
    "slim.python.slim.nets": "slim.nets",
    **{
        f"slim.python.slim.nets.{net}": f"slim.nets.{net}"
        for net in (
            "alexnet",
            "inception",
            "inception_v1",
            "inception_v2",
            "inception_v3",
            "overfeat",
            "resnet_utils",
            "resnet_v1",
            "resnet_v2",
            "vgg",
        )
    },
    "summary.summary": "summary",
    "summary.summary_ops": "summary",
    "tpu.tpu_function": "tpu.python.tpu.tpu_function",
    "training.python.training": "training",
    "training.python.training.hparam": "training",
    "training.python.training.evaluation": "training",
    "training.python.training.training": "training",
}

# What became of names and modules that programs used and that are not here.
MISSING: dict[str, str] = {
    **_absent(
        "boosted_trees.estimator_batch.estimator",
        "GradientBoostedDecisionTreeClassifier GradientBoostedDecisionTreeRegressor",
        "gradient boosted trees",
        _TREES,
    ),
    **_absent(
        "cloud",
        "BigQueryReader BlockCacheParams ConfigureColabSession ConfigureGcsHook "
        "configure_colab_session configure_gcs",
        "access to BigQuery and Cloud Storage",
        "their client libraries, or tensorflow-io for gs:// paths",
    ),
    **_absent(
        "cudnn_rnn",
        "CudnnCompatibleGRUCell CudnnGRU CudnnGRUSaveable CudnnLSTM "
        "CudnnLSTMSaveable CudnnRNNRelu CudnnRNNTanh",
        "recurrent layers for GPUs only, with variables in the layout of cuDNN",
        "tf.keras.layers.LSTM or GRU, which use cuDNN on a GPU; or "
        "tf.contrib.rnn.LSTMBlockFusedCell",
    ),
    "cudnn_rnn.CudnnCompatibleLSTMCell": (
        "it was an LSTM for the variables of CudnnLSTM; use "
        "tf.contrib.rnn.LSTMBlockCell(units, forget_bias=0)"
    ),
    **_absent(
        "data",
        "LMDBDataset StatsAggregator latency_stats set_stats_aggregator "
        "bytes_produced_stats map_and_batch_with_legacy_function",
        "removed from TensorFlow",
        "tf.data, and the TensorFlow profiler for statistics",
    ),
    **_absent(
        "data",
        "read_batch_features",
        "an older make_batched_features_dataset",
        "tf.data.experimental.make_batched_features_dataset",
    ),
    "eager.Iterator": "it was an iterator over a dataset; use iter(dataset)",
    "eager.defun": "it compiled a function; use tf.function",
    "eager.metrics": "it was eager metrics; use tf.keras.metrics",
    "eager.Network": "it was a model class; use tf.keras.Model",
    **_absent(
        "estimator",
        "boosted_trees_classifier_train_in_memory "
        "boosted_trees_regressor_train_in_memory",
        "boosted trees trained without an input_fn",
        _TREES,
    ),
    "distribute.get_cross_replica_context": (
        "it was the strategy outside of its replicas; use tf.distribute.get_strategy"
    ),
    **_absent(
        "ffmpeg",
        "decode_audio decode_video encode_audio",
        "ops that called ffmpeg",
        "tensorflow-io",
    ),
    **_absent(
        "framework",
        "fuse_op strip_name_scope prepend_name_scope get_placeholders py_func "
        "load_and_remap_matrix_initializer reduce_sum_n with_shape with_same_shape",
        "a helper of contrib",
        "the ops of tf itself",
    ),
    **_absent(
        "image",
        "adjust_hsv_in_yiq bipartite_match connected_components dense_image_warp "
        "flat_transforms_to_matrices interpolate_spline matrices_to_flat_transforms "
        "random_hsv_in_yiq single_image_random_dot_stereograms sparse_image_warp",
        "an op of contrib",
        "tf.image, or tf.contrib.image.transform",
    ),
    **_absent(
        "layers",
        "bucketized_column check_feature_columns create_feature_spec_for_parsing "
        "crossed_column embedding_column input_from_feature_columns "
        "joint_weighted_sum_from_feature_columns "
        "make_place_holder_tensors_for_base_features multi_class_target "
        "one_hot_column parse_feature_columns_from_examples "
        "real_valued_column regression_target scattered_embedding_column "
        "sequence_input_from_feature_columns shared_embedding_columns "
        "sparse_column_with_hash_bucket sparse_column_with_integerized_feature "
        "sparse_column_with_keys sparse_column_with_vocabulary_file "
        "weighted_sparse_column weighted_sum_from_feature_columns",
        "the older feature columns, for contrib.learn's Estimators",
        "tf.feature_column, with tf.feature_column.input_layer, linear_model and "
        "make_parse_example_spec",
    ),
    **_absent(
        "layers",
        "bow_encoder rnn_encoder feature_column target_column",
        "a module or encoder of contrib",
        "tf.contrib.layers.embed_sequence and tf.nn",
    ),
    **_absent(
        "learn.datasets",
        "base load_csv_with_header load_csv_without_header load_dataset load_iris "
        "load_boston mnist text_datasets DATASETS",
        "data that was downloaded, by a reader that is gone",
        "files of your own, tf.keras.datasets or tensorflow-datasets",
    ),
    **_absent(
        "learn",
        "DNNClassifier DNNEstimator DNNLinearCombinedClassifier "
        "DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor "
        "LinearClassifier LinearEstimator LinearRegressor",
        "an older canned Estimator, with other columns, variables and predictions",
        "the tf.estimator of the same name",
    ),
    **_absent(
        "learn",
        "DynamicRnnEstimator KMeansClustering LogisticRegressor SVM Trainable "
        "Evaluable BaseEstimator GraphActions Head PredictionKey",
        "an older Estimator or a part of one",
        "tf.estimator.Estimator with a model_fn",
    ),
    "learn.SKCompat": (
        "it trained on arrays; use tf.estimator.inputs.numpy_input_fn with an Estimator"
    ),
    **_absent(
        "learn.estimators",
        "dynamic_rnn_estimator rnn_common tensor_signature",
        "a part of an older Estimator",
        "tf.nn.dynamic_rnn in a model_fn",
    ),
    **_absent(
        "learn",
        "extract_dask_data extract_dask_labels extract_pandas_data "
        "extract_pandas_labels extract_pandas_matrix "
        "infer_real_valued_columns_from_input "
        "infer_real_valued_columns_from_input_fn read_batch_examples "
        "read_batch_features read_batch_record_features read_keyed_batch_examples "
        "read_keyed_batch_features",
        "input for arrays and queues",
        "tf.data, tf.estimator.inputs and tf.feature_column.numeric_column",
    ),
    **_absent(
        "learn.io",
        "generator_input_fn read_batch_examples read_batch_features "
        "read_batch_record_features read_keyed_batch_examples "
        "read_keyed_batch_features queue_parsed_features",
        "input by queues",
        "tf.data.experimental.make_batched_features_dataset",
    ),
    **_absent(
        "learn.monitors",
        "BaseMonitor CaptureVariable CheckpointSaver EveryN ExportMonitor "
        "GraphDump LoggingTrainable NanLoss PrintTensor RunHookAdapterForMonitors "
        "StepCounter StopAtStep SummarySaver ValidationMonitor get_default_monitors",
        "a monitor, which hooks replaced",
        "tf.train.SessionRunHook; tf.estimator.train_and_evaluate for a "
        "ValidationMonitor",
    ),
    **_absent(
        "learn.preprocessing",
        "ByteProcessor CategoricalProcessor CategoricalVocabulary VocabularyProcessor",
        "a preprocessor of arrays",
        "tf.keras.preprocessing.text.Tokenizer, or one of your own",
    ),
    **_absent(
        "learn.utils",
        "gc make_best_model_export_strategy "
        "make_parsing_export_strategy export_estimator",
        "an export of contrib.learn",
        "tf.estimator.BestExporter and LatestExporter",
    ),
    **_absent(
        "metrics",
        "auc_using_placement streaming_sparse_average_precision_at_threshold",
        "a metric of contrib",
        "tf.metrics",
    ),
    **_absent(
        "opt",
        "AdaMaxOptimizer AddSignOptimizer AGNOptimizer DropStaleGradientOptimizer "
        "ElasticAverageOptimizer GGTOptimizer LARSOptimizer LazyAdamGSOptimizer "
        "ModelAverageOptimizer MultitaskOptimizerWrapper NadamOptimizer "
        "PowerSignOptimizer RegAdagradOptimizer ScipyOptimizerInterface "
        "ShampooOptimizer VariableClippingOptimizer",
        "an optimizer of contrib",
        "those of tf.train and tf.keras.optimizers, or scipy.optimize",
    ),
    "predictor.from_contrib_estimator": (
        "it took an Estimator of tf.contrib.learn; use from_estimator"
    ),
    **_absent(
        "quantize",
        "create_eval_graph create_training_graph experimental_create_eval_graph "
        "experimental_create_training_graph",
        "a rewriter of graphs for training with quantization",
        "tensorflow-model-optimization, or quantization after training with "
        "tf.lite.TFLiteConverter",
    ),
    **_absent(
        "rnn",
        "AttentionCellWrapper BidirectionalGridLSTMCell Conv1DLSTMCell "
        "Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell CoupledInputForgetGateLSTMCell "
        "EmbeddingWrapper GLSTMCell GRUBlockCell GRUBlockCellV2 GridLSTMCell "
        "HighwayWrapper IndRNNCell IndyGRUCell IndyLSTMCell InputProjectionWrapper "
        "IntersectionRNNCell NASCell PhasedLSTMCell SRUCell TimeFreqLSTMCell "
        "UGRNNCell WeightNormLSTMCell CompiledWrapper",
        "a cell of contrib",
        "tf.nn.rnn_cell.LSTMCell or GRUCell",
    ),
    **_absent(
        "seq2seq",
        "AttentionMechanism AttentionWrapper AttentionWrapperState "
        "BahdanauAttention BahdanauMonotonicAttention BasicDecoder "
        "BasicDecoderOutput BeamSearchDecoder BeamSearchDecoderOutput "
        "BeamSearchDecoderState CustomHelper Decoder FinalBeamSearchDecoderOutput "
        "GreedyEmbeddingHelper Helper InferenceHelper LuongAttention "
        "LuongMonotonicAttention SampleEmbeddingHelper "
        "ScheduledEmbeddingTrainingHelper ScheduledOutputTrainingHelper "
        "TrainingHelper dynamic_decode gather_tree hardmax monotonic_attention "
        "safe_cumprod tile_batch",
        "attention and decoding",
        "tf.keras.layers.AdditiveAttention or Attention, and tf.while_loop",
    ),
    **_absent(
        "tensorrt",
        "calib_graph_to_infer_graph create_inference_graph",
        "a conversion for TensorRT on GPUs",
        "TensorRT itself, by ONNX and the package tf2onnx",
    ),
    **_absent(
        "tpu",
        "TPUDistributionStrategy keras_to_tpu_model",
        "a way for Keras to use TPUs",
        "tf.distribute.experimental.TPUStrategy",
    ),
    **_absent(
        "training",
        "FeedingQueueRunner GreedyLoadBalancingStrategy NextQueuedSequenceBatch "
        "RandomStrategy SequenceQueueingStateSaver batch_sequences_with_states "
        "bucket bucket_by_sequence_length parse_example_weights "
        "rejection_sample resample_at_rate stratified_sample weighted_resample",
        "input by queues, or a placement strategy",
        "tf.data, such as tf.data.experimental.bucket_by_sequence_length and "
        "rejection_resample",
    ),
    **_absent(
        "util",
        "create_example ops_used_by_graph_def stripped_op_list_for_graph loader",
        "a helper of contrib",
        "tf.train.Example, and tf.load_op_library",
    ),
}
