"""Estimators under TensorFlow's distribute coordinator.

Stands in for `tensorflow.python.distribute.estimator_training` (TensorFlow up to
2.15), which the frozen package imports. Its contract, from the callers:

* `init_run_config(config, tf_config)` gives a RunConfig with strategies its
  cluster properties and its coordinator mode;
* `should_run_distribute_coordinator(config)` tells `train_and_evaluate` whether
  the coordinator runs the job; if so `train_and_evaluate` below does it;
* `estimator_train` and `estimator_evaluate` run `Estimator.train` and `evaluate`
  of a standalone client.

The coordinator (`distribute_coordinator.py`, the same in all supported versions)
calls a function once per task or once per job, inside a worker context that says
which task it is and which session target to use.
"""

import logging

from tensorflow.python.distribute import (
    distribute_coordinator,
    distribute_coordinator_context,
    multi_worker_util,
)
from tensorflow.python.training import server_lib

from estimator_runtime.compat.coordinated_task import replica_of
from estimator_runtime.training_log import TRAINING_LOG

_logger = logging.getLogger(__name__)
_Mode = distribute_coordinator.CoordinatorMode


def init_run_config(config, tf_config):
    """Give a RunConfig that has strategies its cluster and coordinator mode.

    Args:
        config: RunConfig under construction.
        tf_config: TF_CONFIG as a dict.

    Raises:
        ValueError: If a strategy is given twice, or both TF_CONFIG and
            `experimental_distribute.remote_cluster` describe a cluster.
    """
    _take_strategies(config)
    cluster = server_lib.ClusterSpec(tf_config.get("cluster", {}))
    distribute = config._experimental_distribute
    remote = getattr(distribute, "remote_cluster", None)
    # The properties of a task on its own; the coordinator sets the real ones.
    config._init_distributed_setting_from_environment_var({})
    if config._train_distribute and remote:
        if cluster:
            raise ValueError(
                'Cannot set both "cluster_spec" of TF_CONFIG and '
                "`experimental_distribute.remote_cluster`; leave one of them out"
            )
        config._distribute_coordinator_mode = _Mode.STANDALONE_CLIENT
        config._cluster_spec = remote
    elif cluster and config._train_distribute and "master" not in cluster.jobs:
        config._distribute_coordinator_mode = _Mode.INDEPENDENT_WORKER
        config._cluster_spec = cluster
    else:
        config._distribute_coordinator_mode = None
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()
    TRAINING_LOG.info("distribute coordinator: %s", config._distribute_coordinator_mode)


def should_run_distribute_coordinator(config):
    """Tell whether the coordinator has to run the job of this RunConfig."""
    mode = getattr(config, "_distribute_coordinator_mode", None)
    if mode is None:
        return False
    if mode not in (_Mode.STANDALONE_CLIENT, _Mode.INDEPENDENT_WORKER):
        _logger.warning("Unexpected distribute_coordinator_mode: %r", mode)
        return False
    if not config.cluster_spec:
        _logger.warning(
            "No cluster in TF_CONFIG: training and evaluating in this process, "
            "without the distribute coordinator."
        )
        return False
    return True


def train_and_evaluate(estimator, train_spec, eval_spec, executor_cls):
    """Run `tf.estimator.train_and_evaluate` through the coordinator.

    Args:
        estimator: Estimator whose config has a coordinator mode.
        train_spec: TrainSpec.
        eval_spec: EvalSpec.
        executor_cls: Makes the evaluator's loop, of (estimator, specs).

    Raises:
        ValueError: If the config has no coordinator mode.
    """
    config = estimator.config
    mode = config._distribute_coordinator_mode
    if not mode:
        raise ValueError("Distribute coordinator mode is not specified in `RunConfig`.")

    def train(strategy):
        replica = replica_of(estimator, train=strategy)
        context = distribute_coordinator_context.get_current_worker_context()
        # A standalone client trains all tasks from one process: hooks belong to the
        # graph of one of them.
        with_hooks = mode == _Mode.INDEPENDENT_WORKER or context.is_chief
        replica.train(
            input_fn=train_spec.input_fn,
            max_steps=train_spec.max_steps,
            hooks=list(train_spec.hooks) if with_hooks else [],
        )

    def evaluate(strategy):
        replica = replica_of(estimator, evaluate=strategy)
        executor_cls(replica, train_spec, eval_spec)._start_continuous_evaluation()

    distribute_coordinator.run_distribute_coordinator(
        train,
        config.train_distribute,
        evaluate,
        config.eval_distribute,
        mode=mode,
        # An independent worker's coordinator reads the cluster from TF_CONFIG.
        cluster_spec=config.cluster_spec if mode == _Mode.STANDALONE_CLIENT else None,
        session_config=config.session_config,
    )


def estimator_train(estimator, train_distributed_fn, hooks):
    """Run `Estimator.train` of a standalone client through the coordinator.

    Args:
        estimator: Estimator with a train strategy and a remote cluster.
        train_distributed_fn: Called with (estimator, strategy, hooks).
        hooks: Hooks for the chief.

    Returns:
        The trained estimator of the task that ran.

    Raises:
        ValueError: If the mode is another, the cluster has an evaluator, or the
            strategy needs one client per task.
    """
    strategy = estimator.config.train_distribute
    cluster = _standalone_cluster(estimator.config, strategy, "Estimator.train")

    def train(strategy):
        replica = replica_of(estimator, train=strategy)
        train_distributed_fn(replica, strategy, _chief_only(hooks))
        return replica

    return distribute_coordinator.run_distribute_coordinator(
        train,
        strategy,
        mode=_Mode.STANDALONE_CLIENT,
        cluster_spec=cluster,
        session_config=estimator.config.session_config,
    )


def estimator_evaluate(estimator, evaluate_distributed_fn, hooks):
    """Run `Estimator.evaluate` of a standalone client through the coordinator.

    Arguments, result and errors as `estimator_train`, for evaluation.
    """
    strategy = estimator.config.eval_distribute
    cluster = _standalone_cluster(estimator.config, strategy, "Estimator.evaluate")

    def evaluate(strategy):
        replica = replica_of(estimator, evaluate=strategy)
        return evaluate_distributed_fn(replica, strategy, _chief_only(hooks))

    return distribute_coordinator.run_distribute_coordinator(
        evaluate,
        strategy,
        mode=_Mode.STANDALONE_CLIENT,
        cluster_spec=cluster,
        session_config=estimator.config.session_config,
    )


def _take_strategies(config):
    """Move the strategies of `experimental_distribute` to the config itself."""
    for name in ("train_distribute", "eval_distribute"):
        strategy = getattr(config._experimental_distribute, name, None)
        if not strategy:
            continue
        if getattr(config, f"_{name}"):
            raise ValueError(
                f"Either `{name}` or `experimental_distribute.{name}` can be set, "
                "not both; leave one of them out"
            )
        setattr(config, f"_{name}", strategy)


def _chief_only(hooks):
    context = distribute_coordinator_context.get_current_worker_context()
    return hooks if context.is_chief else []


def _standalone_cluster(config, strategy, caller):
    cluster = multi_worker_util.normalize_cluster_spec(config.cluster_spec)
    if "evaluator" in cluster.jobs:
        raise ValueError(
            "'evaluator' job is not supported if you don't use `train_and_evaluate`"
        )
    if config._distribute_coordinator_mode != _Mode.STANDALONE_CLIENT:
        raise ValueError(
            "Only `STANDALONE_CLIENT` mode is supported when you call "
            f"`{caller}`; call `tf.estimator.train_and_evaluate` instead"
        )
    if strategy.extended.experimental_between_graph:
        raise ValueError(
            f"`{caller}` is not supported for {type(strategy).__name__} with "
            "`STANDALONE_CLIENT` mode; call `tf.estimator.train_and_evaluate` instead"
        )
    return cluster
