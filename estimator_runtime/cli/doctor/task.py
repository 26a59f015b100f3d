"""TF_CONFIG as this task reads it, and whether its cluster can be reached."""

import concurrent.futures
import dataclasses
import errno
import socket
from collections.abc import Mapping

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from estimator_runtime.config.role import TaskType
from estimator_runtime.config.tf_config import TFConfig, check_form
from estimator_runtime.distributed import peers
from estimator_runtime.errors import ConfigError

_CONNECT_SECS = 2.0
_THREADS = 32


def read(environ: Mapping[str, str]) -> tuple[TFConfig | None, Finding]:
    """Read TF_CONFIG.

    Args:
        environ: The environment.

    Returns:
        (TFConfig, or None if TF_CONFIG is invalid; the finding about it).
    """
    if "TF_CONFIG" not in environ:
        text = "not set: this process trains by itself"
        return TFConfig(), Finding(OK, "TF_CONFIG", text)
    try:
        check_form(environ)  # as `run` does
        # Only the script knows whether it needs a chief.
        config = TFConfig.from_environ(environ, chief_required=False)
    except ConfigError as error:
        text = str(error).removeprefix("TF_CONFIG: ")
        return None, Finding(PROBLEM, "TF_CONFIG", text)
    facts = {**dataclasses.asdict(config), "cluster": dict(config.cluster)}
    if not config.cluster:
        text = "no cluster in it: this process trains by itself"
        return config, Finding(OK, "TF_CONFIG", text, facts)
    sizes = ", ".join(f"{len(tasks)} {job}" for job, tasks in config.cluster.items())
    text = f"this is {_own(config)}, of a cluster of {sizes}"
    state = OK
    if not {TaskType.CHIEF, TaskType.MASTER} & set(config.cluster):
        state = NOTE
        text += "; without a chief only multi-worker strategies train"
    return config, Finding(state, "TF_CONFIG", text, facts)


def examine_ports(config: TFConfig) -> list[Finding]:
    """Check whether this task can listen, and which other tasks it can reach.

    Args:
        config: The TFConfig, which has a cluster.

    Returns:
        One finding about the port of this task, if it has one, and one about the other
        tasks, if there are any.
    """
    others = peers.tasks(config.cluster, config.cluster)
    own = others.pop(_own(config), None)
    found = [] if own is None else [_examine_own(own)]
    if others:
        found.append(_examine_others(others))
    return found


def _examine_own(address: str) -> Finding:
    state, text = _listen(*_split(address))
    return Finding(
        state, "own port", text or f"{address} is free", {"address": address}
    )


def _listen(host: str, port: int) -> tuple[str, str]:
    """Return (state, text) of the port of this task; no text if all is well."""
    try:
        _bind("", port)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        ender = "end the program that has it (this task, if it runs already), or "
        return PROBLEM, (
            f"cannot listen on port {port} ({error.strerror}); "
            f"{ender if is_taken else ''}give another port"
        )
    try:
        _bind(host, 0)
    except OSError:
        return NOTE, (
            f"port {port} is free, but {host} is not an address of this machine; right "
            "only where something forwards it"
        )
    return OK, ""


def _bind(host: str, port: int) -> None:
    """Bind a socket as gRPC's servers do, and close it; "" is every interface."""
    infos = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, address = infos[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        # A process that holds the port without listening does not block a task.
        if port:
            probe.listen()


def _examine_others(others: Mapping[str, str]) -> Finding:
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        reasons = dict(zip(others, pool.map(_reach, others.values()), strict=True))
    facts = {"tasks": {name: reason or "listening" for name, reason in reasons.items()}}
    silent = [name for name, reason in reasons.items() if reason == _REFUSED]
    lost = [
        f"{name} at {others[name]} ({reason})"
        for name, reason in reasons.items()
        if reason not in (None, _REFUSED)
    ]
    state, text = OK, f"all listening: {', '.join(others)}"
    if lost:
        state = PROBLEM
        text = f"no way to {', '.join(lost)}; check the name or address, and the "
        text += "firewalls between"
    elif silent:
        state = NOTE
        text = f"nobody listens yet for {', '.join(silent)}; their machines answer, so "
        text += "start them"
    return Finding(state, "other tasks", text, facts)


_REFUSED = "nobody listens"


def _reach(address: str) -> str | None:
    """Return why "host:port" cannot be reached; None if it can."""
    try:
        with socket.create_connection(_split(address), _CONNECT_SECS):
            return None
    except ConnectionRefusedError:
        return _REFUSED
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _own(config: TFConfig) -> str:
    return f"{config.task_type} {config.task_index}"
