"""TF_CONFIG as this task reads it, and whether its cluster can be reached."""

import errno
import socket
from collections.abc import Iterator

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.config.role import TaskType
from estimator_runtime.config.tf_config import TFConfig, check_form
from estimator_runtime.distributed import peers


def check_config(subject: Subject) -> Iterator[Finding]:
    """Check TF_CONFIG as `run` does.

    Raises:
        ConfigError: If it is invalid.
    """
    if "TF_CONFIG" not in subject.environ:
        yield Finding(OK, "not set: this process trains by itself")
        return
    check_form(subject.environ)
    # Only the script knows whether it needs a chief.
    config = TFConfig.from_environ(subject.environ, chief_required=False)
    if not config.cluster:
        yield Finding(OK, "no cluster in it: this process trains by itself")
        return
    sizes = ", ".join(f"{len(tasks)} {job}" for job, tasks in config.cluster.items())
    text = f"this is {_own(config)}, of a cluster of {sizes}"
    if {TaskType.CHIEF, TaskType.MASTER} & set(config.cluster):
        yield Finding(OK, text)
    else:
        text += "; without a chief only multi-worker strategies train"
        yield Finding(NOTE, text)


def check_own_port(subject: Subject) -> Iterator[Finding]:
    """Check whether this task can listen at its address, if it has one."""
    address = _addresses(subject.config).get(_own(subject.config))
    if address is None:
        return
    port = int(address.rpartition(":")[2])
    try:
        _listen(port)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        ender = "end the program that has it (this task, if it runs already), or "
        text = (
            f"cannot listen on port {port} ({error.strerror}); "
            f"{ender if is_taken else ''}give another port"
        )
        yield Finding(PROBLEM, text)
    else:
        yield Finding(OK, f"{address} is free")


def check_other_tasks(subject: Subject) -> Iterator[Finding]:
    """Check which other tasks of the cluster accept connections, if there are any."""
    others = _addresses(subject.config)
    others.pop(_own(subject.config), None)
    if not others:
        return
    given = peers.ask_all(list(others.values()), peers.ask)
    answers = dict(zip(others, given, strict=True))
    lost = [n for n, answer in answers.items() if answer is peers.Answer.UNREACHABLE]
    silent = [n for n, answer in answers.items() if answer is peers.Answer.REFUSED]
    if lost:
        names = ", ".join(f"{name} at {others[name]}" for name in lost)
        text = (
            f"no way to {names}; check the name or address, and the firewalls between"
        )
        yield Finding(PROBLEM, text)
    elif silent:
        text = (
            f"nobody listens yet for {', '.join(silent)}; their machines answer, so "
            "start them"
        )
        yield Finding(NOTE, text)
    else:
        yield Finding(OK, f"all listening: {', '.join(others)}")


def _addresses(config: TFConfig | None) -> dict[str, str]:
    """Return the address of each task of the cluster, by its name."""
    if config is None or not config.cluster:
        return {}
    return peers.tasks(config.cluster, config.cluster)


def _own(config: TFConfig | None) -> str:
    return "" if config is None else f"{config.task_type} {config.task_index}"


def _listen(port: int) -> None:
    """Listen on a port of all interfaces as gRPC's servers do, and stop."""
    infos = socket.getaddrinfo(
        None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, address = infos[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        # A process that holds the port without listening does not block a task.
        probe.listen()
