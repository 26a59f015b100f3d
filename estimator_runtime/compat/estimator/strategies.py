"""Strategies that were made for eager execution, used in an Estimator's session."""

import functools

from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    cross_device_ops,
    mirrored_strategy,
)

from estimator_runtime.errors import ConfigError


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


def skip_health_checks_of_evaluators(_module):
    """Let a MultiWorkerMirroredStrategy be copied in an evaluator.

    An Estimator copies its config, and with it the strategy. In a trainer the
    coordination service watches the peers; an evaluator has none of it, and no peers
    either, but starts a thread to check them, with which the strategy "cannot be deep
    copied" (collective_all_reduce_strategy.py).
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._start_check_health_thread

    @functools.wraps(original)
    def start_check_health_thread(self):
        if self._task_type != "evaluator":
            original(self)

    extended._start_check_health_thread = start_check_health_thread


def refuse_parameter_servers(_module):
    """Let a MultiWorkerMirroredStrategy say that it has no use for a ps.

    TensorFlow starts to train without it, and fails, each time it is started, in it.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._initialize_multi_worker

    @functools.wraps(original)
    def initialize_multi_worker(self, cluster_resolver):
        if "ps" in cluster_resolver.cluster_spec().as_dict():
            raise ConfigError(
                "TF_CONFIG: cluster has the job 'ps', and MultiWorkerMirroredStrategy "
                "keeps all variables in its workers; leave it out (--ps, for a job of "
                "`estimator-runtime run`), or use another strategy"
            )
        return original(self, cluster_resolver)

    extended._initialize_multi_worker = initialize_multi_worker


def let_evaluators_be_alone(_module):
    """Let a MultiWorkerMirroredStrategy be made in an evaluator outside the cluster.

    `multi_worker_util.validate_cluster_spec` lets the cluster leave its evaluator out,
    as an Estimator's usually does, but the strategy then looks for it there. An
    evaluator works by itself: its strategy is that of one machine.
    """
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    original = extended._initialize_multi_worker

    @functools.wraps(original)
    def initialize_multi_worker(self, cluster_resolver):
        listed = cluster_resolver.cluster_spec().as_dict()
        if cluster_resolver.task_type == "evaluator" and "evaluator" not in listed:
            return self._initialize_local(cluster_resolver)
        return original(self, cluster_resolver)

    extended._initialize_multi_worker = initialize_multi_worker
