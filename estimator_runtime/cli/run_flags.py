"""The flags of `estimator-runtime run`: cluster, training options, TensorBoard."""

import argparse
import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from estimator_runtime.cli.parser import number
from estimator_runtime.config import waits
from estimator_runtime.config.options import OPTIONS, Option
from estimator_runtime.errors import ConfigError, UsageError
from estimator_runtime.launch.terminal import levels
from estimator_runtime.output import log_filter, metrics_file
from estimator_runtime.output.tensorboard import FIRST_FREE
from estimator_runtime.patching.injection import garbage_collector
from estimator_runtime.tf1 import mode

# Options that only one back end has.
_OF_BACKEND = {
    "cold": "local",
    "private_network": "local",
    "ray_address": "ray",
    "placement": "ray",
    "placement_timeout": "ray",
    "working_dir": "ray",
}
# Options that the local back end lacks, which does not place tasks.
_NOT_LOCAL = ("cpus_per_worker", "cpus_per_ps")
_NEED_CLUSTER = (
    "no_chief",
    "cold",
    "max_restarts",
    "refill_restarts",
    "private_network",
    "heartbeat_timeout",
    "evaluation_timeout",
    "log_dir",
    "log_level",
    "gpus_per_worker",
)
# The name of each parsed option to the variable from which a training reads it.
VARIABLES = {
    **{option.name: option.variable for option in OPTIONS.values()},
    "verbose": log_filter.VARIABLE,
    "grace": waits.STOP_GRACE_VARIABLE,
    "tf1": mode.VARIABLE,
    "tf1_resource_variables": mode.RESOURCES_VARIABLE,
    "log_level": levels.VARIABLE,
    "metrics": metrics_file.VARIABLE,
}
_FLAG = "--tensorboard"
_LAST_PORT = 65535


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(
            f"the value is {text!r}; give a whole number, 0 or more"
        )
    return int(text)


# The arguments of `add_argument` for each kind of number.
_COUNT: dict[str, Any] = {"metavar": "N", "type": _count}
_SECS: dict[str, Any] = {
    "metavar": "SECS",
    "type": number("a number of seconds above 0", lambda value: value > 0),
}
_AMOUNT: dict[str, Any] = {
    "metavar": "X",
    "type": number("a number, 0 or more", lambda value: value >= 0),
}


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a cluster to the parser of `run`."""
    group = parser.add_argument_group("a cluster, on this machine or on several")
    add_task_options(group)
    group.add_argument(
        "--heartbeat-timeout",
        **_SECS,
        help="a task silent for so long counts as failed (default: 30)",
    )
    group.add_argument(
        "--refill-restarts",
        **_SECS,
        help="restore the restarts of a task after so much progress without a failure "
        "(default: 3600)",
    )
    group.add_argument(
        "--evaluation-timeout",
        **_SECS,
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
        help="run the tasks in a network of their own, which only they can reach; the "
        "kernel must allow it",
    )
    group.add_argument(
        "--log-dir",
        metavar="FOLDER",
        help="folder for the full log of each task (default: logs in the model "
        "directory)",
    )
    group.add_argument(
        "--log-level",
        choices=levels.LEVELS,
        help="show log lines of the tasks from this level on; their log files have all "
        "(default: warning above the rows of a terminal, else debug)",
    )
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="write each line as text (the default), or as a JSON object; also without "
        "a cluster",
    )
    group.add_argument(
        "--backend",
        metavar="NAME",
        default="local",
        help="where the tasks run: on this machine (local, the default), in a Ray "
        "cluster (ray), or by a back end that another package provides",
    )
    _add_ray_options(parser.add_argument_group("a cluster of several machines, by Ray"))


def _add_ray_options(group: argparse._ArgumentGroup) -> None:
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
        **_SECS,
        help="wait so long for room, also on nodes that have yet to join (default: "
        "300, only on the nodes that the cluster has)",
    )
    group.add_argument(
        "--working-dir",
        metavar="FOLDER",
        help="copy this folder, which has the script, to every node (default: all "
        "nodes have the current folder)",
    )


def add_task_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that define which tasks a job has."""
    group.add_argument(
        "--workers", help="train in N workers, beside the chief", **_COUNT
    )
    group.add_argument(
        "--ps", help="keep the variables in N parameter servers", **_COUNT
    )
    group.add_argument(
        "--evaluator", action="store_true", help="evaluate each checkpoint in a task"
    )
    group.add_argument(
        "--no-chief",
        action="store_true",
        help="start no chief; worker 0 acts as one, as multi-worker strategies allow",
    )
    group.add_argument(
        "--max-restarts",
        help="how often a task that fails may be restarted (default: 3)",
        **_COUNT,
    )


def add_resource_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that define the resources of each task."""
    group.add_argument(
        "--cpus-per-worker",
        help="CPUs of the chief, of each worker, and of the evaluator (default: 1)",
        **_AMOUNT,
    )
    group.add_argument(
        "--gpus-per-worker",
        help="GPUs of the chief and of each worker (default: on this machine one each, "
        "in turn; elsewhere 0)",
        **_AMOUNT,
    )
    group.add_argument(
        "--cpus-per-ps", help="CPUs of each parameter server (default: 1)", **_AMOUNT
    )


def is_cluster_wanted(options: argparse.Namespace) -> bool:
    """Return whether the options ask for a cluster.

    Raises:
        UsageError: If an option needs a cluster that is not asked for, or another back
            end.
    """
    others = dict.fromkeys(_NOT_LOCAL, "ray") if options.backend == "local" else {}
    for name, backend in {**_OF_BACKEND, **others}.items():
        if not _is_given(options, name) or options.backend == backend:
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
    for name in _NEED_CLUSTER:
        if _is_given(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{flag} is for a cluster; add --workers N, --ps N or --evaluator, or "
                f"leave out {flag}"
            )
    return False


def _is_given(options: argparse.Namespace, name: str) -> bool:
    value = getattr(options, name)
    return value is not None and value is not False  # 0 is a value


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of training to the parser of `run`."""
    group = parser.add_argument_group(
        "training",
        "Each can be given by a variable too, such as "
        f"{OPTIONS['steps_per_run'].variable};\ndocs/environment.md lists them.",
    )
    for option in OPTIONS.values():
        group.add_argument(option.flag, help=option.help, **_argument(option))
    group.add_argument(
        "--verbose",
        action="store_true",
        default=None,  # not given: the variable decides
        help="show every line of TensorFlow's log, with its deprecation warnings about "
        "Estimators and all that its C++ code logs",
    )
    group.add_argument(
        "--tf1",
        action="store_true",
        default=None,  # not given: the variable decides
        help="give the program the API of TensorFlow 1 as `tensorflow`, with "
        "tf.contrib, for programs that were written for it",
    )
    group.add_argument(
        "--tf1-resource-variables",
        action="store_true",
        default=None,  # not given: the variable decides
        help="with --tf1: make resource variables, for --steps-per-run, and not the "
        "reference variables of TensorFlow 1",
    )
    group.add_argument(
        "--metrics",
        metavar="FILE",
        type=os.path.abspath,
        help="append step, loss, rates, evaluations, checkpoints and restarts to this "
        "file, a JSON object a line",
    )
    group.add_argument(
        "--grace",
        metavar="SECS",
        type=_parsed_by(waits.seconds),
        help="time after SIGTERM to end the step, and in a cluster to save it too "
        f"(default: {waits.STOP_GRACE_VARIABLE}, or 30)",
    )


def _argument(option: Option) -> dict[str, Any]:
    """Return the arguments of `add_argument` for an option, without flag and help."""
    if option.is_switch:
        return {"action": argparse.BooleanOptionalAction}
    if option.choices:
        return {"choices": option.choices}
    return {"metavar": option.metavar, "type": _parsed_by(option.parse)}


def carry(flags: argparse.Namespace, environ: MutableMapping[str, str]) -> None:
    """Write the given flags into the environment variables that sessions read.

    Raises:
        ConfigError: If a variable has an invalid value.
        UsageError: If an option needs another one.
    """
    for name, variable in VARIABLES.items():
        value = getattr(flags, name)
        if value is not None:
            environ[variable] = str(int(value) if isinstance(value, bool) else value)
    if flags.tf1_resource_variables and not mode.is_wanted(environ):
        raise UsageError(
            "--tf1-resource-variables is for --tf1; add that, or leave out "
            "--tf1-resource-variables"
        )
    environ.setdefault(OPTIONS["progress"].variable, "auto")
    check(environ)
    metrics_file.create(environ)


def check(environ: Mapping[str, str]) -> None:
    """Raise a ConfigError if a variable that configures training is invalid."""
    garbage_collector.is_wanted(environ)
    log_filter.is_verbose(environ)
    mode.is_wanted(environ)
    mode.has_resource_variables(environ)
    waits.check(environ)
    levels.in_environ(environ)
    # Each is checked on its own. The program may set the others itself, so their
    # combination is checked where it creates a RunConfig or a session.
    for option in OPTIONS.values():
        option.in_environ(environ)


def _parsed_by(parse: Callable[[str, str], Any]) -> Callable[[str], Any]:
    """Return `parse` as a type for argparse, with errors that argparse expects."""

    def parsed(text: str) -> Any:
        try:
            return parse(text, "the value")
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def add_tensorboard_option(parser: argparse.ArgumentParser) -> None:
    """Add `--tensorboard` to the parser of `run`."""
    parser.add_argument(
        _FLAG,
        metavar="[PORT]",
        type=_port,
        help="start TensorBoard with the job, on 127.0.0.1, and print its address: at "
        "this PORT, with 0 at any that is free, without PORT at the first from 6006",
    )


def with_port(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a port for a `--tensorboard` that has none.

    Without it, argparse would take the script for the port.

    Args:
        parser: The parser of `run`, with all its options.
        arguments: What follows `run` on the command line.

    Returns:
        The arguments for the parser.
    """
    takes_value = {
        name
        for action in parser._actions
        if action.nargs != 0
        for name in action.option_strings
    }
    rest, done = list(arguments), []
    # Arguments after the script belong to the script.
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option = rest.pop(0)
        if option == _FLAG and not (rest and rest[0].isdigit()):
            option = f"{_FLAG}={FIRST_FREE}"
        elif option in takes_value and rest:
            done.append(option)
            option = rest.pop(0)
        done.append(option)
    return [*done, *rest]


def _port(text: str) -> int | str:
    if text == FIRST_FREE:
        return FIRST_FREE
    if not (text.isascii() and text.isdigit() and int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(
            f"the value is {text!r}; give a port, 0 to {_LAST_PORT}, or none"
        )
    return int(text)
