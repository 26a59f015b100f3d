"""The input of the tasks of a parameter-server job: one shard each, or the same in all.

Under ParameterServer training, which has no distribution strategy, each task calls
input_fn and reads what it returns. If nothing in the input differs by task, all of
them train on the same batches: with a seed (`tf_random_seed`) even shuffled ones.
"""

from typing import Any

_TRAINERS = ("chief", "master", "worker")


def shard(dataset: Any, config: Any) -> Any:
    """Return the part of a dataset that this task trains on.

    Call it in input_fn before `shuffle` and `batch`. Task i of the n tasks that train
    gets each n-th element, from the i-th on. The chief is the first of them.

    Args:
        dataset: The `tf.data.Dataset` of all examples, in the same order in each task.
        config: The `RunConfig` of the Estimator.

    Returns:
        A dataset. It is `dataset` itself in a process without a cluster, in the
        evaluator and in a ps, and with a strategy in `train_distribute`, which
        distributes the input itself.
    """
    is_trainer = config.task_type in _TRAINERS
    count = config.num_worker_replicas
    if not is_trainer or count < 2 or config.train_distribute is not None:
        return dataset
    return dataset.shard(count, config.global_id_in_cluster)
