"""The flags of `estimator-runtime run`: each is declared once, in a table."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from estimator_runtime.cli.parser import number
from estimator_runtime.config import tf1_mode as mode
from estimator_runtime.config import waits
from estimator_runtime.config.options import OPTIONS, Option
from estimator_runtime.errors import ConfigError, UsageError
from estimator_runtime.launch.terminal import levels
from estimator_runtime.output import log_filter, metrics_file
from estimator_runtime.output.tensorboard import FIRST_FREE
from estimator_runtime.patching.injection import garbage_collector

_LAST_PORT = 65535


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """A flag of the command line.

    Attributes:
        name: What the user types, such as "--ps".
        help: What `--help` says about it.
        kind: The other arguments of `add_argument`.
        needs: What it is for: "cluster"; the back end "local" or "ray"; "placement",
            which any back end but the local one does; empty if it always has effect.
        variable: The environment variable through which it reaches the training.
    """

    name: str
    help: str
    kind: Mapping[str, Any]
    needs: str = ""
    variable: str = ""

    def given(self, options: argparse.Namespace) -> Any:
        """Return the value that the command line gives, or None."""
        dest = self.kind.get("dest") or self.name[2:].replace("-", "_")
        return getattr(options, dest, None)


def _parsed_by(parse: Callable[[str, str], Any]) -> Callable[[str], Any]:
    """Return `parse` as a type for argparse, with errors that argparse expects."""

    def parsed(text: str) -> Any:
        try:
            return parse(text, "the value")
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def _kind(option: Option) -> dict[str, Any]:
    if option.is_switch:
        return {"action": argparse.BooleanOptionalAction}
    if option.choices:
        return {"choices": option.choices}
    return {"metavar": option.metavar, "type": _parsed_by(option.parse)}


_SWITCH: dict[str, Any] = {"action": "store_true", "default": None}
_COUNT: dict[str, Any] = {
    "metavar": "N",
    "type": number("a whole number, 0 or more", lambda value: value >= 0, int),
}
_SECS: dict[str, Any] = {
    "metavar": "SECS",
    "type": number("a number of seconds above 0", lambda value: value > 0),
}
_AMOUNT: dict[str, Any] = {
    "metavar": "X",
    "type": number("a number, 0 or more", lambda value: value >= 0),
}
_FOLDER: dict[str, Any] = {"metavar": "FOLDER"}

_PORT = number(
    f"a port, 0 to {_LAST_PORT}, or none", lambda value: 0 <= value <= _LAST_PORT, int
)

TENSORBOARD = Flag(
    name="--tensorboard",
    kind={
        "metavar": "[PORT]",
        "type": lambda text: text if text == FIRST_FREE else _PORT(text),
    },
    help="start TensorBoard with the job, on 127.0.0.1, and print its address: at this "
    "PORT, with 0 at any that is free, without PORT at the first from 6006",
)
TRAINING = (
    *(
        Flag(name=each.flag, help=each.help, kind=_kind(each), variable=each.variable)
        for each in OPTIONS.values()
    ),
    Flag(
        name="--verbose",
        kind=_SWITCH,
        variable=log_filter.VARIABLE,
        help="show every line of TensorFlow's log, with its deprecation warnings and "
        "all that its C++ code logs",
    ),
    Flag(
        name="--tf1",
        kind=_SWITCH,
        variable=mode.VARIABLE,
        help="give the program the API of TensorFlow 1 as `tensorflow`, with "
        "tf.contrib, for programs that were written for it",
    ),
    Flag(
        name="--tf1-resource-variables",
        kind=_SWITCH,
        variable=mode.RESOURCES_VARIABLE,
        help="with --tf1: make resource variables, for --steps-per-run, and not the "
        "reference variables of TensorFlow 1",
    ),
    Flag(
        name="--metrics",
        kind={"metavar": "FILE", "type": os.path.abspath},
        variable=metrics_file.VARIABLE,
        help="append step, loss, rates, evaluations, checkpoints and restarts to this "
        "file, a JSON object a line",
    ),
    Flag(
        name="--grace",
        kind={"metavar": "SECS", "type": _parsed_by(waits.seconds)},
        variable=waits.STOP_GRACE_VARIABLE,
        help="time after SIGTERM to end the step, and in a cluster to save it too "
        f"(default: {waits.STOP_GRACE_VARIABLE}, or 30)",
    ),
)
TASKS = (
    Flag(name="--workers", kind=_COUNT, help="train in N workers, beside the chief"),
    Flag(name="--ps", kind=_COUNT, help="keep the variables in N parameter servers"),
    Flag(name="--evaluator", kind=_SWITCH, help="evaluate each checkpoint in a task"),
    Flag(
        name="--no-chief",
        kind=_SWITCH,
        needs="cluster",
        help="start no chief; worker 0 acts as one, as multi-worker strategies allow",
    ),
    Flag(
        name="--max-restarts",
        kind=_COUNT,
        needs="cluster",
        help="how often a task that fails may be restarted (default: 3)",
    ),
)
CLUSTER = (
    *TASKS,
    Flag(
        name="--heartbeat-timeout",
        kind={**_SECS, "dest": "heartbeat_timeout_secs"},
        needs="cluster",
        help="a task silent for so long counts as failed (default: 30)",
    ),
    Flag(
        name="--refill-restarts",
        kind={**_SECS, "dest": "refill_restarts_secs"},
        needs="cluster",
        help="restore the restarts of a task after so much progress without a failure "
        "(default: 3600)",
    ),
    Flag(
        name="--evaluation-timeout",
        kind={**_SECS, "dest": "evaluation_timeout_secs"},
        needs="cluster",
        help="fail if the evaluator takes longer than that after the training "
        "(default: as long as it gives signs of life)",
    ),
    Flag(
        name="--cold",
        kind=_SWITCH,
        needs="local",
        help="start plain processes, each of which imports TensorFlow",
    ),
    Flag(
        name="--private-network",
        kind=_SWITCH,
        needs="local",
        help="run the tasks in a network of their own, which only they can reach; the "
        "kernel must allow it",
    ),
    Flag(
        name="--log-dir",
        kind=_FOLDER,
        needs="cluster",
        help="folder for the full log of each task (default: logs in the model "
        "directory)",
    ),
    Flag(
        name="--log-level",
        kind={"choices": levels.LEVELS},
        needs="cluster",
        variable=levels.VARIABLE,
        help="show log lines of the tasks from this level on; their log files have all "
        "(default: warning above the rows of a terminal, else debug)",
    ),
    Flag(
        name="--log-format",
        kind={"choices": ("text", "json")},
        help="write each line as text (the default), or as a JSON object; also without "
        "a cluster",
    ),
    Flag(
        name="--backend",
        kind={"metavar": "NAME", "default": "local"},
        help="where the tasks run: on this machine (local, the default), in a Ray "
        "cluster (ray), or by a back end that another package provides",
    ),
)
RESOURCES = (
    Flag(
        name="--cpus-per-worker",
        kind=_AMOUNT,
        needs="placement",
        help="CPUs of the chief, of each worker, and of the evaluator (default: 1)",
    ),
    Flag(
        name="--gpus-per-worker",
        kind=_AMOUNT,
        needs="cluster",
        help="GPUs of the chief and of each worker (default: on this machine one each, "
        "in turn, and all for a chief alone; elsewhere 0)",
    ),
    Flag(
        name="--cpus-per-ps",
        kind=_AMOUNT,
        needs="placement",
        help="CPUs of each parameter server (default: 1)",
    ),
)
RAY = (
    Flag(
        name="--ray-address",
        kind={"metavar": "HOST:PORT"},
        needs="ray",
        help="the head of the Ray cluster (default: RAY_ADDRESS, or the cluster that "
        "this machine is a node of)",
    ),
    *RESOURCES,
    Flag(
        name="--placement",
        kind={"choices": ("spread", "pack")},
        needs="ray",
        help="put the tasks on many nodes (default: spread), or on few",
    ),
    Flag(
        name="--placement-timeout",
        kind={**_SECS, "dest": "placement_timeout_secs"},
        needs="ray",
        help="wait so long for room, also on nodes that have yet to join (default: "
        "300)",
    ),
    Flag(
        name="--working-dir",
        kind=_FOLDER,
        needs="ray",
        help="copy this folder, which has the script, to every node (default: all "
        "nodes have the current folder)",
    ),
)


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add all flags to the parser of `run`."""
    training = parser.add_argument_group(
        "training",
        "Each can be given by a variable too, such as "
        f"{OPTIONS['steps_per_run'].variable};\ndocs/environment.md lists them.",
    )
    add(training, TRAINING)
    parser.add_argument(TENSORBOARD.name, help=TENSORBOARD.help, **TENSORBOARD.kind)
    title = "a cluster, on this machine or on several"
    add(parser.add_argument_group(title), CLUSTER)
    add(parser.add_argument_group("a cluster of several machines, by Ray"), RAY)


def add(group: argparse._ArgumentGroup, flags: Sequence[Flag]) -> None:
    """Add flags to a group of a parser."""
    for each in flags:
        group.add_argument(each.name, help=each.help, **each.kind)


def is_cluster_wanted(options: argparse.Namespace) -> bool:
    """Return whether the options ask for a cluster.

    Raises:
        UsageError: If an option needs a cluster that is not asked for, or another back
            end.
    """
    is_cluster = options.backend != "local" or not (
        options.workers is None and options.ps is None and not options.evaluator
    )
    for flag in (*CLUSTER, *RAY):
        if flag.needs and flag.given(options) is not None:
            _check_need(flag, options.backend, is_cluster)
    return is_cluster


def _check_need(flag: Flag, backend: str, is_cluster: bool) -> None:
    """Raise UsageError if a flag does not apply to the job."""
    name, is_local = flag.name, backend == "local"
    if (flag.needs == "ray" != backend) or (flag.needs == "placement" and is_local):
        raise UsageError(f"{name} is for --backend ray; add that, or leave out {name}")
    if flag.needs == "local" and not is_local:
        raise UsageError(
            f"{name} is for a cluster on this machine; leave it out, or --backend "
            f"{backend}"
        )
    if not is_cluster:
        raise UsageError(
            f"{name} is for a cluster; add --workers N, --ps N or --evaluator, or "
            f"leave out {name}"
        )


def carry(options: argparse.Namespace, environ: MutableMapping[str, str]) -> None:
    """Write the given flags into the environment variables that sessions read.

    Raises:
        ConfigError: If a variable has an invalid value.
        UsageError: If a flag needs another one.
    """
    for flag in (*TRAINING, *CLUSTER):
        value = flag.given(options)
        if flag.variable and value is not None:
            text = str(int(value) if isinstance(value, bool) else value)
            environ[flag.variable] = text
    if options.tf1_resource_variables and not mode.is_wanted(environ):
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


def with_port(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a port for each `--tensorboard` that has none.

    Without it, argparse would take the script for the port.
    """
    without = f"{TENSORBOARD.name}={FIRST_FREE}"
    return [
        without if each == TENSORBOARD.name and not following.isdigit() else each
        for each, following in zip(arguments, [*arguments[1:], ""], strict=True)
    ]
