"""Distribution strategies of TensorFlow."""

from typing import Any

from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    cross_device_ops,
    mirrored_strategy,
)

# What a MultiWorkerMirroredStrategy consists of.
MultiWorkerExtended: Any = collective_all_reduce_strategy.CollectiveAllReduceExtended


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
