"""Estimators under the distribute coordinator, as in TensorFlow up to 2.15.

This module replaces `tensorflow.python.distribute.estimator_training`, which TensorFlow
2.16 removed. The frozen package calls its public functions, so they keep the names and
the arguments that they had there.
"""

import copy
import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tensorflow.python.distribute import (
    distribute_coordinator,
    distribute_coordinator_context,
)
from tensorflow.python.training import server_lib

from estimator_runtime.output.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
_Mode = distribute_coordinator.CoordinatorMode
_current_context = distribute_coordinator_context.get_current_worker_context


def init_run_config(config: Any, tf_config: Mapping[str, Any]) -> None:
    """Set the cluster and the coordinator mode of a RunConfig that has strategies.

    Args:
        config: The RunConfig under construction.
        tf_config: TF_CONFIG as a dict.

    Raises:
        ValueError: If a strategy is given twice, or for a strategy with
            `experimental_distribute.remote_cluster`.
    """
    distribute = config._experimental_distribute
    for name in ("train_distribute", "eval_distribute"):
        if strategy := getattr(distribute, name, None):
            if getattr(config, f"_{name}"):
                raise ValueError(
                    f"Either `{name}` or `experimental_distribute.{name}` can be set, "
                    "not both; leave one of them out"
                )
            setattr(config, f"_{name}", strategy)
    cluster = server_lib.ClusterSpec(tf_config.get("cluster", {}))
    # These are the properties of a task that runs alone. The coordinator sets the
    # real ones later.
    config._init_distributed_setting_from_environment_var({})
    if config._train_distribute and getattr(distribute, "remote_cluster", None):
        raise ValueError(
            "`experimental_distribute.remote_cluster`: a standalone client, which "
            "trains through the servers of other processes, needs TensorFlow 2.15; "
            "leave it out, and run your program as each task of the cluster (TF_CONFIG)"
        )
    if cluster and config._train_distribute and "master" not in cluster.jobs:
        config._distribute_coordinator_mode = _Mode.INDEPENDENT_WORKER
        config._cluster_spec = cluster
    else:
        config._distribute_coordinator_mode = None
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()
    TRAINING_LOG.info("distribute coordinator: %s", config._distribute_coordinator_mode)


def should_run_distribute_coordinator(config: Any) -> bool:
    """Return whether the coordinator has to run the job of this RunConfig."""
    if getattr(config, "_distribute_coordinator_mode", None) is None:
        return False
    if not config.cluster_spec:
        _logger.warning(
            "No cluster in TF_CONFIG: training and evaluating in this process, "
            "without the distribute coordinator."
        )
        return False
    return True


def train_and_evaluate(
    estimator: Any,
    train_spec: Any,
    eval_spec: Any,
    executor_cls: Callable[[Any, Any, Any], Any],
) -> None:
    """Run `tf.estimator.train_and_evaluate` through the coordinator.

    Args:
        estimator: Estimator whose config has a coordinator mode.
        train_spec: The TrainSpec of the job.
        eval_spec: The EvalSpec of the job.
        executor_cls: Class of the executor that runs the evaluator's loop. It is called
            with (estimator, train_spec, eval_spec).

    Raises:
        ValueError: If the config has no coordinator mode.
    """
    config = estimator.config
    mode = config._distribute_coordinator_mode
    if not mode:
        raise ValueError("Distribute coordinator mode is not specified in `RunConfig`.")

    def train(strategy: Any) -> None:
        replica_of(estimator, train=strategy).train(
            input_fn=train_spec.input_fn,
            max_steps=train_spec.max_steps,
            hooks=list(train_spec.hooks),
        )

    def evaluate(strategy: Any) -> None:
        replica = replica_of(estimator, evaluate=strategy)
        executor_cls(replica, train_spec, eval_spec)._start_continuous_evaluation()

    distribute_coordinator.run_distribute_coordinator(
        train,
        config.train_distribute,
        evaluate,
        config.eval_distribute,
        mode=mode,
        session_config=config.session_config,
    )


def estimator_train(*_arguments: Any) -> NoReturn:
    """Raise a ValueError: under the coordinator, only train_and_evaluate trains."""
    raise ValueError(
        "Only `STANDALONE_CLIENT` mode is supported when you call `Estimator.train` "
        "or `Estimator.evaluate` in a cluster of workers, and it needs TensorFlow "
        "2.15; call `tf.estimator.train_and_evaluate` instead"
    )


estimator_evaluate = estimator_train


def replica_of(estimator: Any, train: Any = None, evaluate: Any = None) -> Any:
    """Copy `estimator` for the task that the current worker context describes.

    Args:
        estimator: Estimator of the whole job.
        train: The task's strategy for training. None keeps the estimator's.
        evaluate: The task's strategy for evaluation. None keeps the estimator's.

    Returns:
        An Estimator that trains or evaluates without the coordinator.
    """
    replica = copy.deepcopy(estimator)
    config = replica._config
    if train is not None:
        config._train_distribute = replica._train_distribution = train
    if evaluate is not None:
        config._eval_distribute = replica._eval_distribution = evaluate
    _set_task(config, _current_context())
    # The copy runs inside the coordinator and must not start another one.
    config._distribute_coordinator_mode = None
    return replica


def _set_task(config: Any, context: Any) -> None:
    """Set the cluster properties of `config` from a worker context."""
    cluster = context.cluster_spec
    config._service = None
    config._task_type = context.task_type
    config._task_id = context.task_id
    config._master = config._evaluation_master = context.master_target
    config._is_chief = context.is_chief
    config._cluster_spec = cluster
    config._num_ps_replicas = 0
    config._num_worker_replicas = 1
    config._global_id_in_cluster = 0
    if not cluster:
        return
    if context.task_type == "evaluator":
        # It only reads checkpoints and has no peers.
        config._cluster_spec = server_lib.ClusterSpec({})
        config._num_worker_replicas = 0
        config._global_id_in_cluster = None
        return
    sizes = {job: cluster.num_tasks(job) for job in cluster.jobs}
    config._num_ps_replicas = sizes.get("ps", 0)
    config._num_worker_replicas = sizes.get("worker", 0) + sizes.get("chief", 0)
    if context.task_type:
        # The chief comes first, parameter servers last, and others by their names.
        rank = {"chief": 0, "ps": 2}
        order = sorted(sizes, key=lambda job: (rank.get(job, 1), job))
        before = order[: order.index(context.task_type)]
        config._global_id_in_cluster = context.task_id + sum(sizes[j] for j in before)
