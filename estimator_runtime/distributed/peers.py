"""Connections to the other tasks of a cluster; every wait for them has a deadline."""

import dataclasses
import enum
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from estimator_runtime import reporting
from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.role import read_task
from estimator_runtime.config.tf_config import parse
from estimator_runtime.errors import PeerTimeoutError

_logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_POLL_SECS = 0.2
# How long a server may take to answer `ask`.
ANSWER_SECS = 2.0
_MAX_QUESTIONS_AT_ONCE = 32
# A wait is logged after the first of these times, and then each time the second passes.
_NAMED_AFTER_SECS = 10.0
_NAMED_EVERY_SECS = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The cluster and the role of this task, as TF_CONFIG has them.

    Attributes:
        cluster: Task type to addresses; empty without a cluster.
        task_type: Type of this task, or None.
        task_index: Its index among those of its type; 0 if TF_CONFIG has none.
    """

    cluster: Cluster
    task_type: str | None
    task_index: int


def this_task(environ: Mapping[str, str] = os.environ) -> TaskConfig:
    """Return what TF_CONFIG has, in a process where a RunConfig has checked it.

    The RunConfig of `tf.contrib.learn` accepts an empty text, a task that is null in
    part, and a task that is alone or not listed in its cluster. All of these are errors
    for the RunConfig of `tf.estimator`.

    Args:
        environ: The environment; that of this process by default.

    Raises:
        ConfigError: If it is not a JSON object, or its cluster or task has the wrong
            form.
    """
    document = parse(environ.get("TF_CONFIG") or "{}")
    task = read_task(document.get("task", {}))
    return TaskConfig(
        cluster=Cluster(document.get("cluster", {})),
        task_type=task.get("type"),
        task_index=task.get("index") or 0,
    )


def tasks(
    cluster: Mapping[str, Sequence[str]], task_types: Iterable[str]
) -> dict[str, str]:
    """Return the tasks of these types, name to address: {"ps 0": "host:2222"}."""
    return {
        f"{task_type} {index}": address
        for task_type in task_types
        for index, address in enumerate(cluster.get(task_type, ()))
    }


class Answer(enum.Enum):
    """The outcome of asking a server whether it is alive.

    Attributes:
        GIVEN: It answers.
        SILENT: It accepts the connection, and says nothing: it is stopped, or busy.
            TensorFlow waits for ever.
        REFUSED: No process listens: the server has ended, or not started. TensorFlow
            notices that too.
        UNREACHABLE: There is no connection: the machine is gone, or cut off, or its
            name is unknown. TensorFlow waits for ever.
    """

    GIVEN = enum.auto()
    SILENT = enum.auto()
    REFUSED = enum.auto()
    UNREACHABLE = enum.auto()


def ask(address: str) -> Answer:
    """Return the `Answer` of TensorFlow's server at "host:port".

    To connect is not enough: the kernel accepts connections for a stopped process too.
    But a gRPC server speaks first, and sends its HTTP/2 settings to each new client.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + ANSWER_SECS
    try:
        connection = socket.create_connection(
            (host.strip("[]"), int(port)), ANSWER_SECS
        )
    except ConnectionRefusedError:
        return Answer.REFUSED
    except OSError:
        return Answer.UNREACHABLE
    with connection:
        connection.settimeout(max(0.1, until - time.monotonic()))
        try:
            return Answer.GIVEN if connection.recv(1) else Answer.SILENT
        except OSError:
            return Answer.SILENT


def is_listening(address: str) -> bool:
    """Return whether a process accepts connections at "host:port"."""
    return ask(address) in (Answer.GIVEN, Answer.SILENT)


def ask_all(
    addresses: Sequence[str], question: Callable[[str], _Result]
) -> list[_Result]:
    """Return the results of `question` for all addresses, asked at the same time."""
    if len(addresses) < 2:
        return [question(address) for address in addresses]
    with ThreadPoolExecutor(min(len(addresses), _MAX_QUESTIONS_AT_ONCE)) as pool:
        return list(pool.map(question, addresses))


def wait_for(
    peers: Mapping[str, str],
    timeout_secs: float,
    ask: Callable[[str], Answer] = ask,
    clock: Callable[[], float] = time.monotonic,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Wait until all `peers` answer.

    Args:
        peers: Name to address.
        timeout_secs: Seconds to wait at most.
        ask: Returns the `Answer` of an address.
        clock: Returns the time in seconds.
        meanwhile: Called between two checks; an exception that it raises ends the wait.

    Raises:
        PeerTimeoutError: If some do not answer within `timeout_secs`; its message names
            them.
    """
    start, named_at = clock(), _NAMED_AFTER_SECS
    missing = dict(peers)
    while True:
        answers = ask_all(list(missing.values()), ask)
        pairs = list(zip(missing.items(), answers, strict=True))
        missing = dict(item for item, answer in pairs if answer is not Answer.GIVEN)
        if not missing:
            return
        reporting.progress(doing=f"waiting for {', '.join(missing)}")
        waited = clock() - start
        names = ", ".join(f"{name} at {address}" for name, address in missing.items())
        if waited >= timeout_secs:
            raise PeerTimeoutError(
                f"no answer from {names} after {timeout_secs:g} s "
                "(session_creation_timeout_secs); is it running, and reachable from "
                "here at this address?"
            )
        if waited >= named_at:
            named_at = waited + _NAMED_EVERY_SECS
            _logger.warning("still waiting for %s after %.0f s", names, waited)
        meanwhile()
        time.sleep(min(_POLL_SECS, timeout_secs))
