"""train_and_evaluate: what each task of a training job does."""

import socket

from estimator_runtime.cluster import Cluster
from estimator_runtime.compat import seam
from estimator_runtime.compat.frozen import stock_train_and_evaluate
from estimator_runtime.errors import ConfigError


@seam.replaces("tensorflow_estimator.python.estimator.training")
def train_and_evaluate(estimator, train_spec, eval_spec):
    """Train and evaluate `estimator`, in the role that TF_CONFIG gives this task.

    Without a cluster this process trains and evaluates in turn. In a cluster a
    chief (or master) and workers train, a ps serves variables, an evaluator
    evaluates each new checkpoint. As `tf.estimator.train_and_evaluate`, but a
    cluster that could only hang is refused first.

    Args:
        estimator: `tf.estimator.Estimator`.
        train_spec: `tf.estimator.TrainSpec`.
        eval_spec: `tf.estimator.EvalSpec`.

    Returns:
        The evaluation metrics and the export results of a local run, as a tuple,
        (None, None) if nothing was left to train; None in a cluster.

    Raises:
        ConfigError: If a task's address cannot be reached by anyone: port 0, a host
            name that does not resolve, or what is no address.
        TypeError: As TensorFlow's, for arguments of the wrong type.
        ValueError: As TensorFlow's, for a task type that has nothing to do.
    """
    cluster = getattr(getattr(estimator, "config", None), "cluster_spec", None)
    check_reachable(cluster.as_dict() if cluster else {})
    return stock_train_and_evaluate(estimator, train_spec, eval_spec)


def check_reachable(cluster, resolve=socket.getaddrinfo):
    """Refuse addresses that no task can connect to.

    Args:
        cluster: Job name to "host:port" addresses, as in `TFConfig.cluster`.
        resolve: Looks up (host, port); raises OSError if the name is unknown.

    Raises:
        ConfigError: If a cluster of several tasks has port 0, an unknown host, or
            an address that is no "host:port" of its own.
    """
    if sum(map(len, cluster.values())) < 2:
        return  # a single task runs in its own process and dials nobody
    # With a strategy, the RunConfig has not looked at the addresses.
    Cluster(cluster).check_addresses()
    for job, addresses in cluster.items():
        for index, address in enumerate(addresses):
            host, _, port = address.rpartition(":")
            where = f"TF_CONFIG: cluster[{job!r}][{index}] is {address!r}"
            if int(port) == 0:
                raise ConfigError(
                    f"{where}, but nobody can connect to port 0; give the port that "
                    "this task listens on"
                )
            try:
                resolve(host.strip("[]"), int(port))
            # UnicodeError: the name is too long, or has two dots in a row.
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(
                    f"{where}, but the host {host!r} cannot be resolved ({reason}); "
                    "give a name or IP address that every task can reach"
                ) from error
