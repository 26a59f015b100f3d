"""The options of `estimator-runtime run` for a cluster."""

import argparse
import math

from estimator_runtime.errors import UsageError

_BACKENDS = ("local", "ray")
# Those of one back end only.
_OF_BACKEND = {
    "cold": "local",
    "private_network": "local",
    "ray_address": "ray",
    "cpus_per_worker": "ray",
    "gpus_per_worker": "ray",
    "cpus_per_ps": "ray",
    "placement": "ray",
    "placement_timeout": "ray",
    "working_dir": "ray",
}
_NEED_CLUSTER = {
    "no_chief": "--no-chief",
    "cold": "--cold",
    "max_restarts": "--max-restarts",
    "refill_restarts": "--refill-restarts",
    "private_network": "--private-network",
    "heartbeat_timeout": "--heartbeat-timeout",
    "evaluation_timeout": "--evaluation-timeout",
    "log_dir": "--log-dir",
}


def add_options(parser):
    """Add the options of a cluster to those of `run`."""
    group = parser.add_argument_group("a cluster, on this machine or on several")
    add_task_options(group)
    group.add_argument(
        "--heartbeat-timeout",
        metavar="SECS",
        type=_seconds,
        help="a task silent for so long counts as failed (default: 30)",
    )
    group.add_argument(
        "--refill-restarts",
        metavar="SECS",
        type=_seconds,
        help="give a task all its restarts again after so much progress without a "
        "failure (default: 3600)",
    )
    group.add_argument(
        "--evaluation-timeout",
        metavar="SECS",
        type=_seconds,
        help="fail if the evaluator takes longer than that after the training "
        "(default: as long as it gives signs of life)",
    )
    group.add_argument(
        "--cold",
        action="store_true",
        help="start plain processes, each of which imports TensorFlow",
    )
    group.add_argument(
        "--private-network",
        action="store_true",
        help="let only the tasks reach each other, and nothing else; not everywhere "
        "possible",
    )
    group.add_argument(
        "--log-dir",
        metavar="FOLDER",
        help="for the whole log of each task (default: logs in the model directory)",
    )
    group.add_argument(
        "--backend",
        choices=_BACKENDS,
        default="local",
        help="where the tasks run: on this machine (local, the default) or in a Ray "
        "cluster",
    )
    _add_ray_options(parser.add_argument_group("a cluster of several machines, by Ray"))


def _add_ray_options(group):
    group.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="the head of the Ray cluster (default: RAY_ADDRESS, or the cluster that "
        "this machine is a node of)",
    )
    add_resource_options(group)
    group.add_argument(
        "--placement",
        choices=("spread", "pack"),
        help="put the tasks on many nodes (default: spread), or on few",
    )
    group.add_argument(
        "--placement-timeout",
        metavar="SECS",
        type=_seconds,
        help="wait so long for room, also for nodes that are yet to join (default: "
        "300, only for what the cluster has)",
    )
    group.add_argument(
        "--working-dir",
        metavar="FOLDER",
        help="copy this folder, which has the script, to every node (default: all "
        "nodes have the present folder)",
    )


def add_task_options(group):
    """Add the options that say which tasks a job has."""
    count = {"metavar": "N", "type": _count}
    group.add_argument(
        "--workers", help="train in N workers, beside the chief", **count
    )
    group.add_argument(
        "--ps", help="keep the variables in N parameter servers", **count
    )
    group.add_argument(
        "--evaluator", action="store_true", help="evaluate each checkpoint in a task"
    )
    group.add_argument(
        "--no-chief",
        action="store_true",
        help="let worker 0 lead, as multi-worker strategies allow",
    )
    group.add_argument(
        "--max-restarts",
        help="how often a task that fails may be restarted (default: 3)",
        **count,
    )


def add_resource_options(group):
    """Add the options that say what each task takes of its machine."""
    amount = {"metavar": "X", "type": _amount}
    group.add_argument(
        "--cpus-per-worker",
        help="CPUs of the chief, of each worker, and of the evaluator (default: 1)",
        **amount,
    )
    group.add_argument(
        "--gpus-per-worker",
        help="GPUs of the chief and of each worker (default: 0)",
        **amount,
    )
    group.add_argument(
        "--cpus-per-ps", help="CPUs of each parameter server (default: 1)", **amount
    )


def is_wanted(options):
    """Tell whether the options ask for a cluster.

    Raises:
        UsageError: If one that only a cluster has is there without it.
    """
    for name, backend in _OF_BACKEND.items():
        if getattr(options, name) in (None, False) or options.backend == backend:
            continue
        flag = f"--{name.replace('_', '-')}"
        if backend != "local":
            raise UsageError(
                f"{flag} is for --backend {backend}; add that, or leave out {flag}"
            )
        raise UsageError(
            f"{flag} is for a cluster on this machine; leave it out, or --backend "
            f"{options.backend}"
        )
    if options.backend != "local":
        return True
    if options.workers is not None or options.ps is not None or options.evaluator:
        return True
    for name, flag in _NEED_CLUSTER.items():
        if getattr(options, name) not in (None, False):
            raise UsageError(
                f"{flag} is for a cluster; add --workers N, --ps N or --evaluator, or "
                f"leave out {flag}"
            )
    return False


def _count(text):
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(
            f"it is {text!r}; give a whole number, 0 or more"
        )
    return int(text)


def _seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(
            f"it is {text!r}; give a number of seconds above 0"
        )
    return value


def _amount(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"it is {text!r}; give a number, 0 or more")
    return value
