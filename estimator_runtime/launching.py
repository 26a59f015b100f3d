"""`estimator-runtime run` with a cluster: its options, made into a job that is run."""

import argparse
import math
import signal
import sys

from estimator_runtime.errors import UsageError
from estimator_runtime.role import TaskType

_NEED_CLUSTER = {
    "no_chief": "--no-chief",
    "cold": "--cold",
    "max_restarts": "--max-restarts",
    "private_network": "--private-network",
    "heartbeat_timeout": "--heartbeat-timeout",
    "log_dir": "--log-dir",
}
_POLL_SECS = 0.5


def add_options(parser):
    """Add the options of a cluster to those of `run`."""
    group = parser.add_argument_group("a cluster on this machine")
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
    group.add_argument(
        "--heartbeat-timeout",
        metavar="SECS",
        type=_seconds,
        help="a task silent for so long counts as failed (default: 30)",
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


def is_wanted(options):
    """Tell whether the options ask for a cluster.

    Raises:
        UsageError: If one that only a cluster has is there without it.
    """
    if options.workers is not None or options.ps is not None or options.evaluator:
        return True
    for name, flag in _NEED_CLUSTER.items():
        if getattr(options, name) not in (None, False):
            raise UsageError(
                f"{flag} is for a cluster; add --workers N, --ps N or --evaluator, or "
                f"leave out {flag}"
            )
    return False


def launch(options):
    """Run the program as a cluster on this machine, to its end.

    Returns:
        The exit status.

    Raises:
        ConfigError: If the job cannot be started.
    """
    from estimator_runtime.launch import get_backend

    job = _job(options)
    backend = get_backend(
        "local", warm=not options.cold, private_network=options.private_network
    )
    handle = backend.submit(job)
    outcome = _wait(handle)
    for line in f"estimator-runtime: {outcome}".splitlines():
        sys.stderr.write(f"{line}\n")
    return outcome.exit_status


def _job(options):
    from estimator_runtime.launch import Job

    replicas = {
        TaskType.CHIEF: 0 if options.no_chief else 1,
        TaskType.WORKER: options.workers or 0,
        TaskType.PS: options.ps or 0,
        TaskType.EVALUATOR: int(options.evaluator),
    }
    if options.no_chief and not options.workers:
        raise UsageError(
            "--no-chief without workers leaves nobody to train; add --workers N, or "
            "leave out --no-chief"
        )
    command = (*(["-m"] if options.is_module else []), "--", *options.program)
    given = {
        "max_restarts": options.max_restarts,
        "heartbeat_timeout_secs": options.heartbeat_timeout,
    }
    return Job(
        command=command,
        replicas=replicas,
        log_dir=options.log_dir,
        **{name: value for name, value in given.items() if value is not None},
    )


def _wait(handle):
    """Wait for the end; the first Ctrl-C or SIGTERM stops the job in order."""

    def stop(number, _frame):
        name = signal.Signals(number).name
        handle.cancel(128 + number, f"the job was stopped by {name}")

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while True:
            try:
                return handle.wait(_POLL_SECS)
            except TimeoutError:
                continue
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
