"""Strategies that were made for eager execution, used in an Estimator's session."""

from tensorflow.python.distribute import cross_device_ops, mirrored_strategy


def adapt(*distribution_strategies):
    """Let each MirroredStrategy train in a session, where its default would hang.

    Made while eager execution is on, a MirroredStrategy over CPUs (or several
    virtual GPUs) all-reduces with RING collectives: blocking ops that wait for
    each other, one thread each, so a session with few threads never finishes its
    first step. Made with eager execution off, TensorFlow itself takes
    ReductionToOneDevice instead (mirrored_strategy.py,
    `_make_collective_ops_with_fallbacks`). An Estimator always trains in a
    session, so the same choice is made here; cross-device ops given by the user
    stay.
    """
    for strategy in distribution_strategies:
        extended = getattr(strategy, "extended", None)
        if isinstance(extended, mirrored_strategy.MirroredExtended) and _rings(
            extended
        ):
            extended._collective_ops = cross_device_ops.ReductionToOneDevice()
            extended._cross_device_ops = extended._collective_ops


def _rings(extended):
    # Of several workers' strategies, which derive from it, only MirroredStrategy's has
    # this; theirs all-reduce between processes, as they must.
    inferred = getattr(extended, "_collective_ops", None)
    return (
        inferred is not None
        and extended._cross_device_ops is inferred
        and isinstance(extended._collective_ops, cross_device_ops.CollectiveAllReduce)
        and any("gpu" not in device.lower() for device in extended._devices)
    )
