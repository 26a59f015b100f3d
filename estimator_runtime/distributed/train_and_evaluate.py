"""`train_and_evaluate`: run the role of this task in a training job."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime import reporting, threads
from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.paths import step_of
from estimator_runtime.config.role import TaskType
from estimator_runtime.distributed import finish_note, open_trainings, peers, roles
from estimator_runtime.distributed.ps import ParameterServer
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching import frozen
from estimator_runtime.patching.frozen import stock_train_and_evaluate

_logger = logging.getLogger(__name__)


@frozen.replaces("tensorflow_estimator.python.estimator.training")
def train_and_evaluate(
    estimator: tf.estimator.Estimator,
    train_spec: tf.estimator.TrainSpec,
    eval_spec: tf.estimator.EvalSpec,
) -> tuple[dict[str, Any] | None, list[Any] | None] | None:
    """Train and evaluate `estimator`, in the role that TF_CONFIG gives this task.

    Without a cluster, this process trains and evaluates in turn. In a cluster, a chief
    (or master) and workers train, a ps serves variables, and an evaluator evaluates
    each new checkpoint. This works like `tf.estimator.train_and_evaluate`, with two
    differences:

    * A cluster that could only hang is refused before the start.
    * When the training has ended, an evaluator ends after the last checkpoint, and a ps
      after the last trainer.

    Args:
        estimator: `tf.estimator.Estimator`.
        train_spec: `tf.estimator.TrainSpec`.
        eval_spec: `tf.estimator.EvalSpec`.

    Returns:
        The evaluation metrics and the export results of a local run, as a tuple, or
        (None, None) if nothing was left to train. None in a cluster.

    Raises:
        ConfigError: If no task can reach the address of a task: port 0, a host name
            that cannot exist, or text that is no address. Also if this is a worker
            beside a chief, with neither a ps nor a strategy.
        TypeError: As TensorFlow's, for arguments of the wrong type.
        ValueError: As TensorFlow's, for a task type that has nothing to do.
    """
    is_estimator = isinstance(estimator, tf.compat.v1.estimator.Estimator)
    path = tf.compat.as_str_any(estimator.model_dir) if is_estimator else ""
    folder = path and reporting.absolute(path)
    with open_trainings.until_done(folder):
        return _train_and_evaluate(estimator, train_spec, eval_spec, folder)


def _train_and_evaluate(
    estimator: tf.estimator.Estimator,
    train_spec: tf.estimator.TrainSpec,
    eval_spec: tf.estimator.EvalSpec,
    folder: str,
) -> tuple[dict[str, Any] | None, list[Any] | None] | None:
    spec = getattr(getattr(estimator, "config", None), "cluster_spec", None)
    # TensorFlow refuses anything else, with its own message.
    cluster = spec.as_dict() if isinstance(spec, tf.train.ClusterSpec) else {}
    check_reachable(cluster)
    task = peers.this_task()
    # TensorFlow also refuses an object that is not an Estimator.
    if not task.cluster or not folder:
        return stock_train_and_evaluate(estimator, train_spec, eval_spec)
    _check_shared(task, estimator.config)
    finish_note.begin()
    # A ps does not use the model directory, which may be a different one there.
    if task.task_type != TaskType.PS:
        reporting.send(model_dir=folder)
    elif getattr(estimator.config, "_distribute_coordinator_mode", None):
        timeout_secs = estimator.config.session_creation_timeout_secs
        ps = ParameterServer(estimator.model_dir, task.cluster, timeout_secs)
        threads.start("ps", ps.serve_and_exit)
    result = stock_train_and_evaluate(estimator, train_spec, eval_spec)
    if roles.is_chief(task):
        _finish(estimator)
    return result


def _check_shared(task: peers.TaskConfig, config: tf.estimator.RunConfig) -> None:
    """Raise if this is a worker that could only wait for variables that no task shares.

    That is the case if the cluster has a chief, but neither a ps nor a strategy.
    """
    chiefs = {TaskType.CHIEF, TaskType.MASTER}.intersection(task.cluster)
    if (
        task.task_type == TaskType.WORKER
        and chiefs
        and TaskType.PS not in task.cluster
        and config.train_distribute is None
        and config.device_fn is None
    ):
        raise ConfigError(
            "TF_CONFIG: the cluster has no ps, and the RunConfig no train_distribute, "
            f"so worker {task.task_index} would wait for ever for the variables of the "
            f"{min(chiefs)}; add a ps (estimator-runtime run --ps 1), leave the "
            "workers out, or give the RunConfig a MultiWorkerMirroredStrategy"
        )


def _finish(estimator: tf.estimator.Estimator) -> None:
    """Notify the other tasks, and the launcher, that the training has ended."""
    path = estimator.latest_checkpoint()
    if path is None:  # none was saved, so there is no step to evaluate or to verify
        finish_note.note(estimator.model_dir, 0)
        return
    # Read from the checkpoint, not from its name: it has to be a readable checkpoint.
    finish_note.note(estimator.model_dir, finish_note.saved_step(path))
    # From the name, because the launcher knows a checkpoint only by its name.
    reporting.send(trained=step_of(path))


def check_reachable(cluster: Mapping[str, Sequence[str]]) -> None:
    """Raise if no task can ever connect to one of the addresses; resolve no names.

    Args:
        cluster: Job name to "host:port" addresses, as in `TFConfig.cluster`.

    Raises:
        ConfigError: If a cluster of several tasks has port 0, a host name that cannot
            exist, or an address that is not a "host:port" of its own.
    """
    if sum(map(len, cluster.values())) < 2:
        return
    # With a strategy, the RunConfig has not checked the addresses.
    Cluster(cluster).check_addresses()
    for job, addresses in cluster.items():
        for index, address in enumerate(addresses):
            if int(address.rpartition(":")[2]) == 0:
                raise ConfigError(
                    f"TF_CONFIG: cluster[{job!r}][{index}] is {address!r}, but nobody "
                    "can connect to port 0; give the port that this task listens on"
                )
