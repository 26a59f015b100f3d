"""The connection to a Ray cluster, and checks of its nodes.

The checks find out whether a node can run the tasks of a job.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from types import ModuleType

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from estimator_runtime.compat.inject.children import STARTUP
from estimator_runtime.errors import ConfigError, LaunchError
from estimator_runtime.launch.job import Resources
from estimator_runtime.launch.ray import node_probe
from estimator_runtime.launch.ray.errors import brief

_CONNECT_SECS = 5.0
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
# For a busy node to start a worker process of Ray, and from it another Python.
_PROBE_SECS = 120.0
_pickling = threading.Lock()


class NodeSilentError(LaunchError):
    """Raised when a node, or Ray's process there, fails or hangs during a query."""


def connect(address: str, working_dir: str | None = None) -> None:
    """Connect this process to a cluster that this machine is a node of.

    Args:
        address: "host:port" of its head node. "auto" uses RAY_ADDRESS or, if that is
            not set, the cluster that runs on this machine.
        working_dir: A folder that Ray copies to the nodes, or None.

    Raises:
        ConfigError: If there is no cluster, or this process cannot join it.
    """
    if ray.is_initialized():
        raise ConfigError(
            "this process is connected to Ray already, and the job needs a connection "
            "of its own; call ray.shutdown() first"
        )
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    _check_reachable(address)
    runtime_env = {} if working_dir is None else {"working_dir": working_dir}
    # Ray installs its own handler of SIGTERM, which would end this process without an
    # orderly end of the job.
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    folder = None
    try:
        if working_dir is None:
            with contextlib.suppress(FileNotFoundError):  # then none can be imported
                folder = os.getcwd()
        if folder is not None:
            # Ray's workers search this process's current folder before the standard
            # library. Other users may be able to write to that folder.
            os.chdir(STARTUP)
        ray.init(
            address=address,
            runtime_env=runtime_env,
            # The lines of the tasks arrive as events instead.
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except ray.exceptions.RuntimeEnvSetupError as error:
        ray.shutdown()
        raise ConfigError(
            f"--working-dir {working_dir!r} cannot be copied to the nodes: "
            f"{brief(error.__cause__ or error)}"
        ) from error
    except Exception as error:
        ray.shutdown()
        raise ConfigError(
            f"Ray cluster {address!r} cannot be joined: {brief(error)}; this machine "
            "has to be one of its nodes, with the same Python and Ray"
        ) from error
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):  # it has been removed meanwhile
                os.chdir(folder)
        if is_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def disconnect() -> None:
    """Leave the cluster, which ends everything that this process runs there."""
    ray.shutdown()


def nodes() -> dict[str, Resources]:
    """Return the resources of each node that is alive and not leaving.

    The keys are their addresses, in ascending order.
    """
    going = leaving()
    return {
        node["NodeManagerAddress"]: Resources(
            cpus=node["Resources"].get("CPU", 0), gpus=node["Resources"].get("GPU", 0)
        )
        for node in sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"])
        if node["Alive"] and node["NodeID"] not in going
    }


def addresses() -> dict[str, str]:
    """Return the address of each node by its id, including nodes that are gone."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}


def is_alive(node_id: str) -> bool:
    """Return whether a node is alive, as far as Ray knows."""
    return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())


def leaving() -> set[str]:
    """Return the ids of the nodes that are about to leave, as after SIGTERM."""
    try:
        return set(ray._private.state.state.get_draining_nodes())
    except Exception:  # noqa: BLE001 - a private API; doing without notices is safe
        return set()


def check_nodes(
    node_ids: Iterable[str], folder: str | None, first: dict[str, dict[str, str]]
) -> None:
    """Check that tasks can run on these nodes, with the same versions everywhere.

    Args:
        node_ids: The ids of the nodes.
        folder: The working directory of the tasks; None for the one that Ray chooses.
        first: What is installed on this machine and on the first node that answered, by
            the name of each in messages. It is empty at the first check, which fills
            it. All nodes are compared with both, as this machine may lack packages that
            only tasks need.

    Raises:
        LaunchError: If a node lacks the folder, or has other versions than this machine
            or another node. Also if the versions of a node or of this machine cannot
            be determined.
        NodeSilentError: If a node does not answer, for instance because it is gone.
    """
    known = addresses()
    # Only once, because while the job runs the current folder may be removed, and this
    # machine may be too busy to answer in time.
    if "this machine" not in first:
        first["this machine"] = _installed_here()
    with _pickled_by_value(node_probe):  # the node may not have this package
        asked = {
            ray.remote(node_probe.probe)
            .options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            )
            .remote(folder or "."): known.get(node_id, node_id)
            for node_id in sorted(set(node_ids))
        }
    for answer, node in asked.items():
        try:
            found = ray.get(answer, timeout=_PROBE_SECS)
        except ray.exceptions.RayTaskError as error:
            raise LaunchError(
                f"node {node} cannot say what it has installed: {brief(error)}"
            ) from error
        except ray.exceptions.RayError as error:
            raise NodeSilentError(
                f"node {node} does not say what it has installed: {brief(error)}"
            ) from error
        if found is None:
            raise LaunchError(
                f"node {node} has no folder {folder!r}; start the job in a folder that "
                "all nodes have, or copy it there with --working-dir"
            )
        for who, theirs in list(first.items()):
            difference = node_probe.difference(found, theirs, who)
            if difference is not None:
                raise LaunchError(
                    f"node {node} {difference}; install the same versions on all nodes"
                )
        if len(first) == 1:
            first[f"node {node}"] = found


@contextlib.contextmanager
def _pickled_by_value(module: ModuleType) -> Iterator[None]:
    """Make Ray send the code of a module to the nodes while the context is active."""
    with _pickling:  # two threads may check nodes
        ray.cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            ray.cloudpickle.unregister_pickle_by_value(module)


def _installed_here() -> dict[str, str]:
    """Return what is installed on this machine; see `node_probe.probe`."""
    try:
        found = node_probe.probe(os.getcwd())
    except subprocess.TimeoutExpired as error:
        why = f"a new Python has not answered within {error.timeout:g} s"
    except subprocess.CalledProcessError as error:
        why = f"a new Python ended with exit status {error.returncode}"
    except OSError as error:
        why = f"no Python can be started in the present folder: {error.strerror}"
    else:
        if found is not None:
            return found
        why = "no Python can be started in the present folder: Permission denied"
    raise LaunchError(f"this machine cannot say what it has installed: {why}")


def _check_reachable(address: str) -> None:
    """Check that a head node accepts connections at an address.

    Ray itself would retry for minutes.

    Raises:
        ConfigError: If the address is malformed or does not answer.
    """
    if address == "auto":
        try:
            from ray._private.services import find_bootstrap_address

            address = find_bootstrap_address(None)
        except (ImportError, TypeError):  # a private API that may have changed
            return
        if address is None:
            raise ConfigError(
                "no Ray cluster runs on this machine; start one with `ray start "
                "--head`, join one with `ray start --address`, or name its head with "
                "--ray-address"
            )
    host, _, port = address.rpartition(":")
    if "://" in address or not (host and port.isascii() and port.isdigit()):
        raise ConfigError(
            f"Ray address {address!r} is not the address of a head node; give its "
            "host:port, such as 10.0.0.1:6379, or auto"
        )
    # As Ray does: its head node listens on an address that other machines can reach.
    host = ray.util.get_node_ip_address() if host in _LOCAL else host.strip("[]")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address!r}: {error}; is it started, with `ray "
            "start --head`, and reachable from here?"
        ) from error
