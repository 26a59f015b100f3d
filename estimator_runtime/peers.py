"""Whether the other tasks of a cluster are there; every wait for them has an end."""

import logging
import socket
import time

from estimator_runtime.errors import PeerTimeoutError

_logger = logging.getLogger(__name__)

_POLL_SECS = 0.2
_CONNECT_SECS = 1.0
# A wait is named in the log after the first of these, and again after each second one.
_NAMED_AFTER_SECS = 10.0
_NAMED_EVERY_SECS = 60.0


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


def wait_for(peers, timeout_secs, listening=is_listening, clock=time.monotonic):
    """Wait until all `peers` accept connections.

    Args:
        peers: Name to address.
        timeout_secs: Seconds to wait at most.
        listening: Tells whether an address accepts connections.
        clock: Gives the time in seconds.

    Raises:
        PeerTimeoutError: If some do not within `timeout_secs`; it names them.
    """
    start, named_at = clock(), _NAMED_AFTER_SECS
    missing = dict(peers)
    while True:
        missing = {n: a for n, a in missing.items() if not listening(a)}
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
