"""Patches that make strategies for eager execution work in an Estimator's session."""

import functools
import signal
import threading
from types import ModuleType
from typing import Any

from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    cross_device_ops,
    mirrored_strategy,
)

from estimator_runtime.errors import ConfigError


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


def skip_health_checks_of_evaluators(_module: ModuleType) -> None:
    """Make it possible to copy a MultiWorkerMirroredStrategy in an evaluator.

    An Estimator copies its config, and with it the strategy. In a trainer the
    coordination service watches the peers. An evaluator has neither that service nor
    peers, but its strategy starts a thread to check them, and then "cannot be deep
    copied" (collective_all_reduce_strategy.py).
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._start_check_health_thread

    @functools.wraps(original)
    def start_check_health_thread(self: Any) -> None:
        if self._task_type != "evaluator":
            original(self)

    extended._start_check_health_thread = start_check_health_thread


def refuse_parameter_servers(_module: ModuleType) -> None:
    """Make a MultiWorkerMirroredStrategy raise an error in a cluster with a ps.

    The workers would train without the parameter server, while its own task would fail
    each time it is started.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._initialize_multi_worker

    @functools.wraps(original)
    def initialize_multi_worker(self: Any, cluster_resolver: Any) -> None:
        if "ps" in cluster_resolver.cluster_spec().as_dict():
            raise ConfigError(
                "TF_CONFIG: cluster has the job 'ps', and MultiWorkerMirroredStrategy "
                "keeps all variables in its workers; leave it out (--ps, for a job of "
                "`estimator-runtime run`), or use another strategy"
            )
        return original(self, cluster_resolver)

    extended._initialize_multi_worker = initialize_multi_worker


def allow_evaluators_outside_cluster(_module: ModuleType) -> None:
    """Make a MultiWorkerMirroredStrategy usable in an evaluator outside the cluster.

    `multi_worker_util.validate_cluster_spec` accepts a cluster without its evaluator,
    as an Estimator's usually is, but the strategy then looks for the evaluator there.
    An evaluator works alone, so its strategy is that of one machine.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._initialize_multi_worker

    @functools.wraps(original)
    def initialize_multi_worker(self: Any, cluster_resolver: Any) -> None:
        listed = cluster_resolver.cluster_spec().as_dict()
        if cluster_resolver.task_type == "evaluator" and "evaluator" not in listed:
            return self._initialize_local(cluster_resolver)
        return original(self, cluster_resolver)

    extended._initialize_multi_worker = initialize_multi_worker


def restore_signal_handler(_module: ModuleType) -> None:
    """Make SIGTERM do again what it did before a MultiWorkerMirroredStrategy was made.

    TensorFlow's coordination service replaces the handler, without Python's knowledge,
    by one that only notes the time (preemption_notifier.cc). A program that is told to
    end before it trains, or after that, would then go on.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._initialize_multi_worker

    @functools.wraps(original)
    def initialize_multi_worker(self: Any, cluster_resolver: Any) -> None:
        try:
            original(self, cluster_resolver)
        finally:
            handler = signal.getsignal(signal.SIGTERM)
            # Only the main thread may set one, and None is one that is not Python's.
            is_main = threading.current_thread() is threading.main_thread()
            if is_main and handler is not None:
                signal.signal(signal.SIGTERM, handler)

    extended._initialize_multi_worker = initialize_multi_worker
