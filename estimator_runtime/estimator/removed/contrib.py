"""TensorFlow's private names that `tf.contrib` re-exported, for `contrib.names`.

Programs of TensorFlow 1 know these by their names under `tf.contrib`. Their code is
still in TensorFlow or in the frozen package, where it works as it did.
"""

from typing import Any

from tensorflow.python.distribute.distribute_config import DistributeConfig
from tensorflow.python.distribute.distribute_coordinator import (
    run_standard_tensorflow_server,
)
from tensorflow.python.eager.backprop import (
    gradients_function,
    implicit_grad,
    implicit_val_and_grad,
    val_and_grad_function,
)
from tensorflow.python.eager.context import num_gpus
from tensorflow.python.framework.smart_cond import smart_cond, smart_constant_value
from tensorflow.python.framework.sparse_tensor import (
    convert_to_tensor_or_sparse_tensor,
)
from tensorflow.python.framework.tensor_spec import BoundedTensorSpec
from tensorflow.python.ops import summary_ops_v2
from tensorflow.python.ops.check_ops import assert_same_float_dtype, assert_scalar
from tensorflow.python.ops.confusion_matrix import remove_squeezable_dimensions
from tensorflow.python.ops.lookup_ops import (
    DenseHashTable,
    IdTableWithHashBuckets,
    KeyValueTensorInitializer,
    LookupInterface,
    MutableHashTable,
    StaticHashTableV1,
    TextFileIdTableInitializer,
    TextFileIndex,
    TextFileInitializer,
    TextFileStringTableInitializer,
    index_table_from_file,
    index_to_string_table_from_file,
)
from tensorflow.python.ops.lookup_ops import (
    index_table_from_tensor as _index_table,
)
from tensorflow.python.ops.lookup_ops import (
    index_to_string_table_from_tensor as _string_table,
)
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.tpu.async_checkpoint import AsyncCheckpointSaverHook
from tensorflow.python.tpu.device_assignment import device_assignment
from tensorflow.python.tpu.training_loop import repeat, while_loop
from tensorflow.python.util.deprecation import (
    deprecated,
    deprecated_arg_values,
    deprecated_args,
)
from tensorflow_estimator.python.estimator.canned.head import (
    _binary_logistic_head_with_sigmoid_cross_entropy_loss as binary_head,
)
from tensorflow_estimator.python.estimator.canned.head import (
    _multi_class_head_with_softmax_cross_entropy_loss as multi_class_head,
)
from tensorflow_estimator.python.estimator.canned.head import (
    _regression_head as regression_head,
)
from tensorflow_estimator.python.estimator.canned.rnn import (
    RNNClassifier,
    RNNEstimator,
)
from tensorflow_estimator.python.estimator.canned.saved_model_estimator import (
    SavedModelEstimator,
)
from tensorflow_estimator.python.estimator.export.export import (
    build_supervised_input_receiver_fn_from_input_fn,
)
from tensorflow_estimator.python.estimator.hooks.hooks import (
    make_stop_at_checkpoint_step_hook,
)
from tensorflow_estimator.python.estimator.tpu.tpu_context import TPUContext
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import (
    BatchConfig,
    export_estimator_savedmodel,
)

__all__ = [
    "AsyncCheckpointSaverHook",
    "BatchConfig",
    "BoundedTensorSpec",
    "ContribHashTable",
    "DenseHashTable",
    "DistributeConfig",
    "IdTableWithHashBuckets",
    "KeyValueTensorInitializer",
    "LookupInterface",
    "MutableHashTable",
    "RNNClassifier",
    "RNNEstimator",
    "ResourceVariable",
    "SavedModelEstimator",
    "TPUContext",
    "TextFileIdTableInitializer",
    "TextFileIndex",
    "TextFileInitializer",
    "TextFileStringTableInitializer",
    "assert_same_float_dtype",
    "assert_scalar",
    "binary_head",
    "build_supervised_input_receiver_fn_from_input_fn",
    "convert_to_tensor_or_sparse_tensor",
    "deprecated",
    "deprecated_arg_values",
    "deprecated_args",
    "device_assignment",
    "export_estimator_savedmodel",
    "gradients_function",
    "implicit_grad",
    "implicit_val_and_grad",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
    "make_stop_at_checkpoint_step_hook",
    "multi_class_head",
    "num_gpus",
    "regression_head",
    "remove_squeezable_dimensions",
    "repeat",
    "run_standard_tensorflow_server",
    "smart_cond",
    "smart_constant_value",
    "summary_ops_v2",
    "val_and_grad_function",
    "while_loop",
]


class ContribHashTable(StaticHashTableV1):
    """A table of fixed keys and values, with the former name of its initializer."""

    @property
    def init(self) -> Any:
        """The op that fills the table."""
        return self.initializer


def index_table_from_tensor(mapping: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a table from strings to their places; `mapping` was renamed since.

    Args:
        mapping: The strings, in their order.
        *args: Arguments of TensorFlow's function of this name, after the first.
        **kwargs: The same, by name.
    """
    return _index_table(mapping, *args, **kwargs)


def index_to_string_table_from_tensor(mapping: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a table from places to strings; `mapping` was renamed since.

    Args:
        mapping: The strings, in their order.
        *args: Arguments of TensorFlow's function of this name, after the first.
        **kwargs: The same, by name.
    """
    return _string_table(mapping, *args, **kwargs)
