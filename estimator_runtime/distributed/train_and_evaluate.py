"""train_and_evaluate: what each task of a training job does."""

import logging
import socket
import threading

import tensorflow as tf

from estimator_runtime import executor, finish, peers, reporting, unfinished
from estimator_runtime.checkpoint import files
from estimator_runtime.cluster import Cluster
from estimator_runtime.compat import seam
from estimator_runtime.compat.frozen import stock_train_and_evaluate
from estimator_runtime.errors import ConfigError
from estimator_runtime.release import Release
from estimator_runtime.role import TaskType

_logger = logging.getLogger(__name__)


@seam.replaces("tensorflow_estimator.python.estimator.training")
def train_and_evaluate(estimator, train_spec, eval_spec):
    """Train and evaluate `estimator`, in the role that TF_CONFIG gives this task.

    Without a cluster this process trains and evaluates in turn. In a cluster a
    chief (or master) and workers train, a ps serves variables, an evaluator
    evaluates each new checkpoint. As `tf.estimator.train_and_evaluate`, but a
    cluster that could only hang is refused first, and a host that is not known yet,
    for which TensorFlow waits in silence, is named in the log. When the training has
    ended, an evaluator ends after the last checkpoint and a ps after the last trainer.

    Args:
        estimator: `tf.estimator.Estimator`.
        train_spec: `tf.estimator.TrainSpec`.
        eval_spec: `tf.estimator.EvalSpec`.

    Returns:
        The evaluation metrics and the export results of a local run, as a tuple,
        (None, None) if nothing was left to train; None in a cluster.

    Raises:
        ConfigError: If a task's address can be reached by nobody: port 0, a host
            name that cannot exist, or what is no address; or if this is a worker beside
            a chief, with neither a ps nor a strategy.
        TypeError: As TensorFlow's, for arguments of the wrong type.
        ValueError: As TensorFlow's, for a task type that has nothing to do.
    """
    is_estimator = isinstance(estimator, tf.compat.v1.estimator.Estimator)
    folder = tf.compat.as_str_any(estimator.model_dir) if is_estimator else ""
    with unfinished.until_done(folder and reporting.absolute(folder)):
        return _train_and_evaluate(estimator, train_spec, eval_spec)


def _train_and_evaluate(estimator, train_spec, eval_spec):
    spec = getattr(getattr(estimator, "config", None), "cluster_spec", None)
    # Anything else is for TensorFlow to refuse, in its own words.
    cluster = spec.as_dict() if isinstance(spec, tf.train.ClusterSpec) else {}
    check_reachable(cluster)
    # Beside the training: a look-up may take its time, and the host may come up yet.
    threading.Thread(target=warn_of_unknown_hosts, args=(cluster,), daemon=True).start()
    task = peers.this_task()
    # What is none is refused by TensorFlow as well.
    is_estimator = isinstance(estimator, tf.compat.v1.estimator.Estimator)
    if not task.cluster or not is_estimator:
        return stock_train_and_evaluate(estimator, train_spec, eval_spec)
    _check_shared(task, estimator.config)
    finish.begin()
    # A ps has no use for the folder: it may be one of its own.
    if task.task_type != TaskType.PS:
        folder = tf.compat.as_str_any(estimator.model_dir)
        reporting.send(model_dir=reporting.absolute(folder))
    elif getattr(estimator.config, "_distribute_coordinator_mode", None):
        end = finish.Finish(estimator.model_dir)
        timeout_secs = estimator.config.session_creation_timeout_secs
        arguments = (end, dict(task.cluster), timeout_secs, Release())
        threading.Thread(
            target=executor.leave_when_finished, args=arguments, daemon=True
        ).start()
    result = stock_train_and_evaluate(estimator, train_spec, eval_spec)
    if _leads(task):
        _finish(estimator)
    return result


def _check_shared(task, config):
    """Refuse to be a worker that could only wait for variables that nobody shares."""
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


def _leads(task):
    """Tell whether a task is the one that saves checkpoints."""
    if TaskType.CHIEF in task.cluster or TaskType.MASTER in task.cluster:
        return task.task_type in (TaskType.CHIEF, TaskType.MASTER)
    return (task.task_type, task.task_index) == (TaskType.WORKER, 0)


def _finish(estimator):
    """Let the other tasks, and the launcher, know that the training has ended."""
    path = estimator.latest_checkpoint()
    if path is None:  # none is saved: there is nothing to evaluate, nor to hold against
        finish.note(estimator.model_dir, 0)
        return
    # Read, not taken from the name: it has to be in a checkpoint that can be read.
    finish.note(estimator.model_dir, finish.saved_step(path))
    # The launcher has only the name.
    reporting.send(trained=files.step_of(path))


def check_reachable(cluster):
    """Raise if an address is one that no task can ever connect to; look none up.

    Args:
        cluster: Job name to "host:port" addresses, as in `TFConfig.cluster`.

    Raises:
        ConfigError: If a cluster of several tasks has port 0, a host name that cannot
            exist, or an address that is no "host:port" of its own.
    """
    # With a strategy, the RunConfig has not looked at the addresses.
    if len(list(_dialled(cluster))) > 1:
        Cluster(cluster).check_addresses()
    for where, _, port in _dialled(cluster):
        if int(port) == 0:
            raise ConfigError(
                f"{where}, but nobody can connect to port 0; give the port that this "
                "task listens on"
            )


def warn_of_unknown_hosts(cluster, resolve=socket.getaddrinfo):
    """Log the hosts of a cluster whose names do not resolve here, now.

    They are not refused: on some platforms a name resolves only once its task runs,
    and tasks start in any order.

    Args:
        cluster: Job name to "host:port" addresses.
        resolve: Looks up (host, port); raises OSError if the name is unknown.
    """
    for where, host, port in _dialled(cluster):
        try:
            resolve(host, int(port))
        except OSError as error:
            _logger.warning(
                "%s, but the host %r cannot be resolved yet (%s); TensorFlow waits for "
                "it. If it never comes up, give a name or IP address that every task "
                "can reach",
                where,
                host,
                error.strerror or error,
            )


def _dialled(cluster):
    """Give (where, host, port) of each task, if there are several: one dials nobody."""
    if sum(map(len, cluster.values())) < 2:
        return
    for job, addresses in cluster.items():
        for index, address in enumerate(addresses):
            host, _, port = address.rpartition(":")
            where = f"TF_CONFIG: cluster[{job!r}][{index}] is {address!r}"
            yield where, host.strip("[]"), port
