"""Graphs of TensorFlow: kinds of values, definitions of ops, and changes of a graph."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.distribute import values
from tensorflow.python.framework import (
    composite_tensor,
    config,
    error_interpolation,
    op_def_registry,
    random_seed,
)
from tensorflow.python.ops import (
    gen_rnn_ops,
    resource_variable_ops,
    resources,
    while_v2,
)
from tensorflow.python.training import training_util

CompositeTensor: Any = composite_tensor.CompositeTensor
BaseResourceVariable: Any = resource_variable_ops.BaseResourceVariable
DistributedVariable: Any = values.DistributedVariable
# Whether kernels that are not deterministic, such as a clock, refuse to run.
is_deterministic = config.is_op_determinism_enabled
GLOBAL_STEP_READ_KEY = training_util.GLOBAL_STEP_READ_KEY
op_definition = op_def_registry.get
# Adds where the ops were made that an error of a session names as {{node NAME}}.
interpolate_graph = error_interpolation.interpolate_graph
while_loop = while_v2.while_loop
# A layer of an LSTM in one op, with its gradient.
block_lstm = gen_rnn_ops.block_lstm
# The collection of the iterators of datasets.
ITERATORS: str = iterator_ops.GLOBAL_ITERATORS
local_resources = resources.local_resources
report_uninitialized_resources = resources.report_uninitialized_resources
# Maps a graph to how many of its ops have drawn a seed.
_seeds_drawn: Any = random_seed._graph_to_seed_dict


@contextlib.contextmanager
def adding_to(graph: tf.Graph) -> Iterator[None]:
    """Make a graph the default, and allow ops to be added to it even if it is final.

    They are outside the scopes of the program. A session call in another thread never
    sees the graph half changed.
    """
    was_finalized = graph.finalized
    graph._unsafe_unfinalize()
    try:
        with (
            graph._mutation_lock(),
            graph.as_default(),
            tf.compat.v1.name_scope(None),
            graph.control_dependencies(None),
            graph.colocate_with(None, ignore_existing=True),
            graph.device(None),
        ):
            yield
    finally:
        if was_finalized:
            graph.finalize()


def run_after(op: tf.Operation, before: tf.Operation) -> None:
    """Make an op wait for another one that was created later."""
    op._add_control_input(before)


def is_reference(tensor: tf.Tensor) -> bool:
    """Return whether a tensor is that of a reference variable."""
    return tensor.dtype._is_ref_dtype


def set_flag(op: tf.Operation, name: str) -> None:
    """Set an attribute of an op to True."""
    op._set_attr(name, tf.compat.v1.AttrValue(b=True))


def functions_of(graph: tf.Graph) -> dict[str, Any]:
    """Return the functions in a graph by their names."""
    return graph._functions


def seeds_drawn(graph: tf.Graph) -> int:
    """Return how many ops of a graph have drawn a seed from it."""
    return _seeds_drawn.get(graph, 0)


def set_seeds_drawn(graph: tf.Graph, count: int) -> None:
    """Set how many ops of a graph have drawn a seed; the next one continues."""
    _seeds_drawn[graph] = count


def has_learning_phase(graph: tf.Graph) -> bool:
    """Return whether Keras has a learning phase for a graph."""
    backends = [
        sys.modules.get(name) for name in ("keras.src.backend", "tf_keras.src.backend")
    ]
    return any(graph in getattr(b, "_GRAPH_LEARNING_PHASES", ()) for b in backends)
