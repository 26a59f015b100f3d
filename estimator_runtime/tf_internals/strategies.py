"""Distribution strategies of TensorFlow."""

import functools
from typing import Any

from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    cross_device_ops,
    mirrored_strategy,
)
from tensorflow.python.framework import indexed_slices, ops
from tensorflow.python.util import nest

# What a MultiWorkerMirroredStrategy consists of.
MultiWorkerExtended: Any = collective_all_reduce_strategy.CollectiveAllReduceExtended


def send_gradients_of_changing_length_dense() -> None:
    """Make the tasks of a multi-worker strategy exchange such gradients as dense ones.

    The gradient of a lookup, such as an embedding's, has a row for each of its ids, and
    so another length in each task. TensorFlow pads them (`all_reduce_indexed_slices` in
    cross_device_utils.py), but in a session its collective ops fail with a shape
    mismatch. Gradients whose length the graph knows stay sparse.
    """
    stock_all_reduce = cross_device_ops.CollectiveAllReduce._all_reduce

    @functools.wraps(stock_all_reduce)
    def all_reduce(
        self: Any, reduce_op: Any, value: Any, replica_id: int, options: Any
    ) -> Any:
        if (
            self._num_between_graph_workers > 1
            and not ops.executing_eagerly_outside_functions()
        ):
            value = nest.map_structure(_dense_unless_sized, value)
        return stock_all_reduce(self, reduce_op, value, replica_id, options)

    cross_device_ops.CollectiveAllReduce._all_reduce = all_reduce


def _dense_unless_sized(value: Any) -> Any:
    """Return a gradient as a dense tensor, if the graph does not know its length."""
    if not isinstance(value, indexed_slices.IndexedSlices) or value.dense_shape is None:
        return value
    is_sized = value.indices.shape.is_fully_defined()
    return value if is_sized else ops.convert_to_tensor(value)


def adapt(*distribution_strategies: Any) -> None:
    """Make each MirroredStrategy usable in a session, where its default would hang.

    A MirroredStrategy over CPUs (or several virtual GPUs) all-reduces with RING
    collectives if it is made while eager execution is on. These are blocking ops that
    wait for each other and take one thread each, so a session with few threads never
    finishes its first step. With eager execution off, TensorFlow itself uses
    ReductionToOneDevice instead (mirrored_strategy.py,
    `_make_collective_ops_with_fallbacks`). An Estimator always trains in a session, so
    this function makes the same choice. It keeps cross-device ops given by the user.

    Args:
        *distribution_strategies: Strategies of a RunConfig. Other strategies than a
            MirroredStrategy, and None, are left as they are.
    """
    for strategy in distribution_strategies:
        extended = getattr(strategy, "extended", None)
        if isinstance(extended, mirrored_strategy.MirroredExtended) and _rings(
            extended
        ):
            extended._collective_ops = cross_device_ops.ReductionToOneDevice()
            extended._cross_device_ops = extended._collective_ops


def _rings(extended: Any) -> bool:
    """Return whether TensorFlow has chosen RING collectives for a MirroredExtended."""
    # Strategies of several workers derive from it but do not have this attribute. They
    # have to all-reduce between processes, and are left as they are.
    inferred = getattr(extended, "_collective_ops", None)
    return (
        inferred is not None
        and extended._cross_device_ops is inferred
        and isinstance(extended._collective_ops, cross_device_ops.CollectiveAllReduce)
        and any("gpu" not in device.lower() for device in extended._devices)
    )
