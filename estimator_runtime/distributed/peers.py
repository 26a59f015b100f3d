"""Whether the other tasks of a cluster are there; every wait for them has an end."""

import dataclasses
import enum
import logging
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from estimator_runtime.cluster import Cluster
from estimator_runtime.errors import PeerTimeoutError
from estimator_runtime.role import read_task
from estimator_runtime.tf_config import parse

_logger = logging.getLogger(__name__)

_POLL_SECS = 0.2
_CONNECT_SECS = 1.0
# How long a server may take to answer `ask`.
ANSWER_SECS = 2.0
_MAX_QUESTIONS_AT_ONCE = 32
# A wait is named in the log after the first of these, and again after each second one.
_NAMED_AFTER_SECS = 10.0
_NAMED_EVERY_SECS = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What TF_CONFIG says of this task.

    Attributes:
        cluster: Task type to addresses; empty without a cluster.
        task_type: Type of this task, or None.
        task_index: Its index among those of its type; 0 if TF_CONFIG has none.
    """

    cluster: Cluster
    task_type: str | None
    task_index: int


def this_task(environ=os.environ):
    """Give TF_CONFIG as it is, in a process where a RunConfig has checked it.

    That of `tf.contrib.learn` takes an empty text, a task that is null in part, and one
    that is alone or not listed, which are mistakes for that of `tf.estimator`.

    Args:
        environ: The environment; that of this process by default.

    Raises:
        ConfigError: If it is no JSON object, or its cluster or task has the wrong form.
    """
    document = parse(environ.get("TF_CONFIG") or "{}")
    task = read_task(document.get("task", {}))
    return Task(
        cluster=Cluster(document.get("cluster", {})),
        task_type=task.get("type"),
        task_index=task.get("index") or 0,
    )


def tasks(cluster, task_types):
    """Give name to address of the tasks of these types, such as {"ps 0": "h:2222"}."""
    return {
        f"{task_type} {index}": address
        for task_type in task_types
        for index, address in enumerate(cluster.get(task_type, ()))
    }


def is_listening(address):
    """Tell whether anybody accepts connections at "host:port"."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECS):
            return True
    except OSError:
        return False


class Answer(enum.Enum):
    """What became of a question to a server.

    Attributes:
        GIVEN: It answers.
        REFUSED: Nobody listens: it has ended, or not started. TensorFlow sees that too.
        NONE: No answer: it is stopped, or cut off. TensorFlow waits, for ever.
    """

    GIVEN = enum.auto()
    REFUSED = enum.auto()
    NONE = enum.auto()


def ask(address):
    """Give the `Answer` of TensorFlow's server at "host:port".

    The kernel accepts connections also for a process that is stopped. But gRPC's
    servers speak first: whoever has connected gets their HTTP/2 settings.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + ANSWER_SECS
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECS) as s:
            s.settimeout(max(0.1, until - time.monotonic()))
            return Answer.GIVEN if s.recv(1) else Answer.NONE
    except ConnectionRefusedError:
        return Answer.REFUSED
    except OSError:
        return Answer.NONE


def is_answering(address):
    """Tell whether TensorFlow's server at "host:port" answers."""
    return ask(address) is Answer.GIVEN


def ask_all(addresses, question):
    """Give the answers of all addresses to a `question`, asked at the same time."""
    if len(addresses) < 2:
        return [question(address) for address in addresses]
    with ThreadPoolExecutor(min(len(addresses), _MAX_QUESTIONS_AT_ONCE)) as pool:
        return list(pool.map(question, addresses))


def wait_for(peers, timeout_secs, answering=is_answering, clock=time.monotonic):
    """Wait until all `peers` answer.

    Args:
        peers: Name to address.
        timeout_secs: Seconds to wait at most.
        answering: Tells whether an address answers.
        clock: Gives the time in seconds.

    Raises:
        PeerTimeoutError: If some do not within `timeout_secs`; it names them.
    """
    start, named_at = clock(), _NAMED_AFTER_SECS
    missing = dict(peers)
    while True:
        answers = ask_all(list(missing.values()), answering)
        pairs = zip(missing.items(), answers, strict=True)
        missing = {name: address for (name, address), is_there in pairs if not is_there}
        if not missing:
            return
        waited = clock() - start
        names = ", ".join(f"{name} at {address}" for name, address in missing.items())
        if waited >= timeout_secs:
            raise PeerTimeoutError(
                f"nobody answers for {names}, after {timeout_secs:g} s "
                "(session_creation_timeout_secs); is it started, and reachable from "
                "here under this address?"
            )
        if waited >= named_at:
            named_at = waited + _NAMED_EVERY_SECS
            _logger.warning("waiting for %s, for %.0f s now", names, waited)
        time.sleep(min(_POLL_SECS, timeout_secs))
