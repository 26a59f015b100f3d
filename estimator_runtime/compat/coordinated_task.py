"""An Estimator as one task of the distribute coordinator has it.

The coordinator calls a function in a worker context: which task this is, of which
cluster, and what its sessions connect to.
"""

import copy

from tensorflow.python.distribute import distribute_coordinator_context
from tensorflow.python.training import server_lib


def replica_of(estimator, train=None, evaluate=None):
    """Copy `estimator` for the task that the current worker context describes.

    Args:
        estimator: Estimator of the whole job.
        train: The task's strategy for training; None leaves the estimator's.
        evaluate: The task's strategy for evaluation; None leaves the estimator's.

    Returns:
        An Estimator that trains or evaluates by itself, without the coordinator.
    """
    replica = copy.deepcopy(estimator)
    config = replica._config
    if train is not None:
        config._train_distribute = replica._train_distribution = train
    if evaluate is not None:
        config._eval_distribute = replica._eval_distribution = evaluate
    _take_task(config, distribute_coordinator_context.get_current_worker_context())
    # The copy runs inside the coordinator: it must not start another one.
    config._distribute_coordinator_mode = None
    return replica


def _take_task(config, context):
    """Set the cluster properties of `config` to those of a worker context."""
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
        # It reads checkpoints and knows nobody.
        config._cluster_spec = server_lib.ClusterSpec({})
        config._num_worker_replicas = 0
        config._global_id_in_cluster = None
        return
    sizes = {job: cluster.num_tasks(job) for job in cluster.jobs}
    config._num_ps_replicas = sizes.get("ps", 0)
    config._num_worker_replicas = sizes.get("worker", 0) + sizes.get("chief", 0)
    if context.task_type:
        config._global_id_in_cluster = context.task_id + sum(
            sizes[job] for job in _jobs_before(context.task_type, sizes)
        )


def _jobs_before(task_type, jobs):
    """Give the jobs numbered before `task_type`: chief first, ps last, else a to z."""
    rank = {"chief": 0, "ps": 2}
    order = sorted(jobs, key=lambda job: (rank.get(job, 1), job))
    return order[: order.index(task_type)]
