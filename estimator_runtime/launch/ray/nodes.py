"""A connection to a Ray cluster: its nodes, what they have, and what would not do."""

import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import threading

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from estimator_runtime.errors import ConfigError, LaunchError
from estimator_runtime.helper_process import FIRST_FOLDER
from estimator_runtime.launch import node_probe
from estimator_runtime.launch.ray_errors import brief
from estimator_runtime.launch.resources import Resources

_logger = logging.getLogger(__name__)
_CONNECT_SECS = 5.0
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
# Starting a worker process of Ray on a busy node, and a Python beside it.
_PROBE_SECS = 120.0
_pickling = threading.Lock()
# What this machine has installed, and the first node that was asked: all have to be as
# both are, as this machine may lack what only tasks need. By how they are called.
_first: dict[str, dict[str, str]] = {}


class NodeSilentError(LaunchError):
    """A node, or Ray's process there, went or hung while it was asked."""


def connect(address, working_dir=None):
    """Connect this process to the cluster of which this machine is a node.

    Args:
        address: "host:port" of its head; "auto" for RAY_ADDRESS, or the one that runs
            here.
        working_dir: Folder that Ray copies to the nodes; None for none.

    Raises:
        ConfigError: If there is no cluster, or Ray refuses this process.
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
    # Ray brings its own, which would end this process without an end of the job.
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    folder = _current_folder() if working_dir is None else None
    try:
        if folder is not None:
            # Ray's workers search the folder that is current here before the standard
            # library. It may be anybody's.
            os.chdir(FIRST_FOLDER)
        ray.init(
            address=address,
            runtime_env=runtime_env,
            # The lines of the tasks come by another way.
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
            with contextlib.suppress(OSError):  # it was removed meanwhile
                os.chdir(folder)
        if is_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)
    _first.clear()


def disconnect():
    """Leave the cluster; what this process has there ends."""
    ray.shutdown()


def nodes():
    """Give address to `Resources` of all nodes that are there and stay, in order."""
    going = leaving()
    return {
        node["NodeManagerAddress"]: Resources(
            cpus=node["Resources"].get("CPU", 0), gpus=node["Resources"].get("GPU", 0)
        )
        for node in sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"])
        if node["Alive"] and node["NodeID"] not in going
    }


def addresses():
    """Give id to address of all nodes that Ray knows of, those that are gone too."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}


def is_alive(node_id):
    """Tell whether a node is there, as far as Ray knows."""
    return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())


def is_lost(node_id):
    """Tell whether a node is gone; where Ray cannot be asked, it is not."""
    try:
        return not is_alive(node_id)
    except Exception:  # who asks may have the end of a run to tell of
        _logger.debug("Ray does not say which nodes there are", exc_info=True)
        return False


def leaving():
    """Give the ids of the nodes that are about to go, as after SIGTERM."""
    try:
        return set(ray._private.state.state.get_draining_nodes())
    except Exception:  # noqa: BLE001 - it is private, and a notice less is no harm
        return set()


def check_nodes(node_ids, folder):
    """Check that tasks can run on these nodes, and would be the same program there.

    Args:
        node_ids: Their ids.
        folder: Where tasks are to run; None for where Ray puts them.

    Raises:
        LaunchError: If one lacks the folder, has other versions than this machine or
            than another node, or cannot say it; or this machine cannot.
        NodeSilentError: If one does not answer, as when it is gone.
    """
    known = addresses()
    # Once: while the job runs the folder may go, and this machine be too busy.
    if "this machine" not in _first:
        _first["this machine"] = _installed_here()
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
        for who, theirs in list(_first.items()):
            difference = node_probe.difference(found, theirs, who)
            if difference is not None:
                raise LaunchError(
                    f"node {node} {difference}; install the same versions on all nodes"
                )
        if len(_first) == 1:
            _first[f"node {node}"] = found


@contextlib.contextmanager
def _pickled_by_value(module):
    with _pickling:  # two threads may check nodes
        ray.cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            ray.cloudpickle.unregister_pickle_by_value(module)


def _installed_here():
    try:
        found = node_probe.probe(os.getcwd())
        if found is None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (subprocess.SubprocessError, OSError) as error:
        raise LaunchError(
            f"this machine cannot say what it has installed: {_why_silent(error)}"
        ) from error
    return found


def _why_silent(error):
    if isinstance(error, subprocess.TimeoutExpired):
        return f"a new Python has not answered within {error.timeout:g} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"a new Python has ended with exit status {error.returncode}"
    return f"no Python can be started in the present folder: {error.strerror}"


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed, so nothing is imported from it
        return None


def _check_reachable(address):
    """Refuse an address where nobody answers: Ray would try again for minutes."""
    if address == "auto":
        try:
            from ray._private.services import find_bootstrap_address

            address = find_bootstrap_address(None)
        except (ImportError, TypeError):  # it is private, and may have changed
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
            f"Ray address {address!r} is no address of a head node; give its "
            "host:port, such as 10.0.0.1:6379, or auto"
        )
    # As Ray does: its head listens on an address that other machines can reach.
    host = ray.util.get_node_ip_address() if host in _LOCAL else host.strip("[]")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address!r}: {error}; is it started, with `ray "
            "start --head`, and reachable from here?"
        ) from error
