"""The patch that makes a MultiWorkerMirroredStrategy work in each task of a cluster."""

import functools
import signal
import threading
from types import ModuleType
from typing import Any

from estimator_runtime.errors import ConfigError
from estimator_runtime.tf_internals.strategies import (
    MultiWorkerExtended,
    send_gradients_of_changing_length_dense,
)


def patch_multi_worker(_module: ModuleType) -> None:
    """Patch how the strategy sets up a task, and which gradients it sends dense."""
    send_gradients_of_changing_length_dense()
    stock_initialize = MultiWorkerExtended._initialize_multi_worker
    stock_check_health = MultiWorkerExtended._start_check_health_thread

    @functools.wraps(stock_initialize)
    def initialize_multi_worker(self: Any, cluster_resolver: Any) -> None:
        jobs = cluster_resolver.cluster_spec().as_dict()
        _refuse_ps(jobs)
        if cluster_resolver.task_type == "evaluator" and "evaluator" not in jobs:
            # `validate_cluster_spec` accepts a cluster without its evaluator, but the
            # strategy then looks for the evaluator there. An evaluator works alone.
            self._initialize_local(cluster_resolver)
            return
        try:
            stock_initialize(self, cluster_resolver)
        finally:
            _restore_sigterm()

    @functools.wraps(stock_check_health)
    def start_check_health_thread(self: Any) -> None:
        # An Estimator copies its config, and with it the strategy. In a trainer the
        # coordination service watches the peers. An evaluator has neither that service
        # nor peers, and with this thread its strategy "cannot be deep copied"
        # (collective_all_reduce_strategy.py).
        if self._task_type != "evaluator":
            stock_check_health(self)

    MultiWorkerExtended._initialize_multi_worker = initialize_multi_worker
    MultiWorkerExtended._start_check_health_thread = start_check_health_thread


def _refuse_ps(jobs: Any) -> None:
    """Raise an error for a parameter server, which would fail each time it is started.

    The workers would train without it.
    """
    if "ps" in jobs:
        raise ConfigError(
            "TF_CONFIG: cluster has the job 'ps', and MultiWorkerMirroredStrategy "
            "keeps all variables in its workers; leave it out (--ps, for a job of "
            "`estimator-runtime run`), or use another strategy"
        )


def _restore_sigterm() -> None:
    """Make SIGTERM do again what it did before.

    TensorFlow's coordination service replaces the handler, without Python's knowledge,
    by one that only notes the time (preemption_notifier.cc). A program that is told to
    end before it trains, or after that, would then go on.
    """
    handler = signal.getsignal(signal.SIGTERM)
    # Only the main thread may set one, and None is one that is not Python's.
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and handler is not None:
        signal.signal(signal.SIGTERM, handler)
