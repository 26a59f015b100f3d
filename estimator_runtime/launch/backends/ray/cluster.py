"""A Ray cluster: the connection to it, its nodes, and the actors that it runs."""

import contextlib
import dataclasses
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from estimator_runtime.errors import ConfigError, LaunchError
from estimator_runtime.launch.backends.ray import node_probe
from estimator_runtime.launch.backends.ray.actor import LEASE_SECS, TaskActor
from estimator_runtime.launch.backends.ray.errors import brief
from estimator_runtime.launch.job import Job, Resources
from estimator_runtime.patching.injection.children import STARTUP

_CONNECT_SECS = 5.0
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
# For a busy node to start a worker process of Ray, and from it another Python.
_PROBE_SECS = 120.0
_pickling = threading.Lock()
# The supervisor restarts a failed task, never Ray.
_ACTOR_CLASS = ray.remote(
    max_restarts=0, concurrency_groups={"events": 1, "files": 1, "place": 1}
)(TaskActor)


class NodeLostError(LaunchError):
    """Raised when a node, or an actor there, is lost or does not answer."""


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
    if address != "auto":
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
            "has to be one of its nodes (ray start), with the same Python and Ray, and "
            "--ray-address can name the head"
        ) from error
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):  # it has been removed meanwhile
                os.chdir(folder)
        if is_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def nodes() -> dict[str, Resources]:
    """Return the resources of each node that is alive, by its address, in order."""
    return {
        node["NodeManagerAddress"]: Resources(
            cpus=node["Resources"].get("CPU", 0), gpus=node["Resources"].get("GPU", 0)
        )
        for node in sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"])
        if node["Alive"]
    }


@dataclasses.dataclass(frozen=True)
class RayWaits:
    """How long the tasks of a job wait for a cluster, in seconds.

    Attributes:
        close_secs: For tasks that can be reached to end.
        gone_secs: Then, for Ray to report that all actors are gone.
        retry_secs: Before a node, an actor or a placement is tried again.
        actors_secs: For all actors to start, each of which is a new Python process on
            its node.
        silent_secs: Before a delay is reported.
        lease_secs: How long a task lives on without an answer of this machine, and a
            margin for the time that its kill takes, and for clocks that run at
            different speeds.
        answer_secs: For an actor to answer a call.
    """

    close_secs: float = 20.0
    gone_secs: float = 10.0
    retry_secs: float = 1.0
    actors_secs: float = 120.0
    silent_secs: float = 5.0
    lease_secs: float = LEASE_SECS + 5.0
    answer_secs: float = 15.0


class RayCluster:
    """The cluster that this process is connected to, as the tasks of a job use it.

    Attributes:
        folder: The working directory of the tasks; None for the copy of a folder that
            Ray makes on each node.
        waits: How long the tasks wait for the cluster.
    """

    def __init__(self, folder: str | None, waits: RayWaits | None = None) -> None:
        self.folder, self.waits = folder, waits or RayWaits()
        # What this machine and the first node that answered have installed, by the name
        # of each in messages. All nodes are compared with both, as this machine may
        # lack packages that only tasks need.
        self._first: dict[str, dict[str, str]] = {}
        self._checked: set[str] = set()

    def create(self, options: dict[str, Any], job: Job) -> Any:
        """Return the handle of a new `TaskActor`, created with Ray's options."""
        return _ACTOR_CLASS.options(**options).remote(job, self.folder)

    def get(self, answer: Any, timeout: float | None = None) -> Any:
        """Return what an actor answers within some seconds, or raise its error."""
        return ray.get(answer, timeout=timeout)

    def wait(self, answers: Sequence[Any], timeout: float) -> tuple[list, list]:
        """Return the answers that are there within some seconds, and the others."""
        return ray.wait(list(answers), num_returns=len(answers), timeout=timeout)

    def kill(self, actor: Any) -> None:
        """Kill an actor and everything that it has started."""
        ray.kill(actor)

    def disconnect(self) -> None:
        """Leave the cluster, which ends everything that this process runs there."""
        ray.shutdown()

    def is_alive(self, node_id: str) -> bool:
        """Return whether a node is alive, as far as Ray knows."""
        return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())

    def addresses(self) -> dict[str, str]:
        """Return the address of each node by its id, including nodes that are gone."""
        return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}

    def check_nodes(self, node_ids: Iterable[str]) -> None:
        """Check that tasks can run on these nodes, with the same versions everywhere.

        Nodes that have been found good are not checked again.

        Raises:
            LaunchError: If a node lacks the working directory, or has other versions
                than this machine or another node. Also if the versions of a node or of
                this machine cannot be determined.
            NodeLostError: If a node does not answer, for instance because it is gone.
        """
        new = set(node_ids) - self._checked
        if not new:
            return
        # Only once: while the job runs, the current folder may be removed, and this
        # machine may be too busy to answer in time.
        if "this machine" not in self._first:
            self._first["this machine"] = _installed_here()
        known = self.addresses()
        with _pickled_by_value(node_probe):  # the node may not have this package
            answers = {node: self._probe(node) for node in sorted(new)}
        for node_id, answer in answers.items():
            node = f"node {known.get(node_id, node_id)}"
            found = _versions(node, answer)
            if found is None:
                raise LaunchError(
                    f"{node} has no folder {self.folder!r}; start the job in a folder "
                    "that all nodes have, or copy it there with --working-dir"
                )
            for who, theirs in self._first.items():
                difference = node_probe.difference(found, theirs, who)
                if difference is not None:
                    raise LaunchError(
                        f"{node} {difference}; install the same versions on all nodes"
                    )
            if len(self._first) == 1:
                self._first[node] = found
        self._checked |= new

    def _probe(self, node_id: str) -> Any:
        """Ask a node what it has installed."""
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        probe = ray.remote(node_probe.probe).options(
            num_cpus=0, max_retries=0, scheduling_strategy=there
        )
        return probe.remote(self.folder or ".")


def _versions(node: str, answer: Any) -> dict[str, str] | None:
    """Return what a node has answered; see `node_probe.probe`."""
    try:
        return ray.get(answer, timeout=_PROBE_SECS)
    except ray.exceptions.RayTaskError as error:
        raise LaunchError(
            f"{node} cannot say what it has installed: {brief(error)}"
        ) from error
    except ray.exceptions.RayError as error:
        raise NodeLostError(
            f"{node} does not say what it has installed: {brief(error)}"
        ) from error


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
    found, why = None, "no Python can be started in the present folder"
    try:
        found = node_probe.probe(os.getcwd())
    except OSError as error:
        why += f": {error.strerror}"
    except subprocess.SubprocessError as error:
        why = f"a new Python fails or hangs ({type(error).__name__})"
    if found is None:
        raise LaunchError(f"this machine cannot say what it has installed: {why}")
    return found


def _check_reachable(address: str) -> None:
    """Check that a head node accepts connections at an address.

    Ray itself would retry for minutes.

    Raises:
        ConfigError: If the address is malformed or does not answer.
    """
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
