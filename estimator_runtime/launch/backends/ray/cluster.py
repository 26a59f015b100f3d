"""A Ray cluster: the connection to it, the room for a job, and the job's actors."""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from estimator_runtime.errors import ConfigError, LaunchError
from estimator_runtime.launch.backends.ray.actor import TaskActor, installed
from estimator_runtime.launch.backends.ray.errors import brief
from estimator_runtime.launch.job import Job, Resources
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.patching.injection.children import STARTUP

_CONNECT_SECS = 5.0
_POLL_SECS = 0.5
_SAID_AFTER_SECS = 5.0
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
# The supervisor restarts a failed task, never Ray.
_ACTOR_CLASS = ray.remote(max_restarts=0, concurrency_groups={"events": 1})(TaskActor)


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
    try:
        with _handler_of_sigterm_kept(), _harmless_folder(working_dir is None):
            ray.init(
                address=address,
                runtime_env={} if working_dir is None else {"working_dir": working_dir},
                # The lines of the tasks arrive as events instead.
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except Exception as error:
        ray.shutdown()
        raise ConfigError(
            f"Ray cluster {address!r} cannot be joined: {brief(error)}; this machine "
            "has to be one of its nodes (ray start), with the same Python and Ray; "
            "--ray-address can name the head, and --working-dir needs a folder of at "
            "most 500 MB"
        ) from error


@contextlib.contextmanager
def _handler_of_sigterm_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM: Ray's own ends this process at once."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and handler is not None:
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _harmless_folder(is_wanted: bool) -> Iterator[None]:
    """Change to a folder of ours: Ray's workers import from the one of `ray.init`.

    They search it before the standard library, and other users may write to the present
    one.
    """
    if not is_wanted:
        yield
        return
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(STARTUP)
        yield
    finally:
        os.fchdir(folder)
        os.close(folder)


class RayCluster:
    """The cluster that this process is connected to, with the room for one job.

    The room is a placement group of Ray, with a bundle for each task.

    Args:
        job: The job.
        strategy: "spread" places tasks on as many nodes as possible, "pack" on as few
            as possible.
        folder: The working directory of the tasks; None for the copy of a folder that
            Ray makes on each node.
        console: Where to report a wait for room.
    """

    def __init__(
        self, job: Job, strategy: str, folder: str | None, console: Console
    ) -> None:
        self._job, self._folder, self._console = job, folder, console
        self._asked = [job.resources_of(task) for task in job.tasks]
        self._strategy = strategy.upper()
        self._group: Any = None

    def reserve(self, timeout_secs: float) -> None:
        """Reserve room for all tasks, waiting until it is free.

        Args:
            timeout_secs: The longest wait, in seconds.

        Raises:
            LaunchError: If there is no room in time.
        """
        bundles = [_bundle(each) for each in self._asked]
        self._group = placement_group(bundles, strategy=self._strategy)
        started, is_reported = time.monotonic(), False
        while not self._group.wait(_POLL_SECS):
            waited = time.monotonic() - started
            if waited >= timeout_secs:
                raise LaunchError(
                    f"there was no room for the job within {timeout_secs:g} s: "
                    f"{self._shortage()}; start fewer tasks, or wait longer with "
                    "--placement-timeout"
                )
            if waited > _SAID_AFTER_SECS and not is_reported:
                is_reported = True
                self._console.say(f"waiting for room: {self._shortage()}")

    def create(self, index: int) -> Any:
        """Return a new `TaskActor` for the task at this index of the job's tasks."""
        asked = self._asked[index]
        options = _ACTOR_CLASS.options(
            num_cpus=asked.cpus,
            num_gpus=asked.gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=index
            ),
        )
        return options.remote(self._job, self._folder, installed())

    def get(self, answer: Any, timeout: float) -> Any:
        """Return what an actor answers within some seconds, or raise its error."""
        return ray.get(answer, timeout=timeout)

    def wait(self, answers: Sequence[Any], timeout: float) -> list[Any]:
        """Return the answers that are still missing after some seconds."""
        return ray.wait(list(answers), num_returns=len(answers), timeout=timeout)[1]

    def kill(self, actor: Any) -> None:
        """Kill an actor and everything that it has started."""
        ray.kill(actor)

    def has_lost(self, node_id: str) -> bool:
        """Return whether a node is gone, as far as Ray knows."""
        return all(
            each["NodeID"] != node_id or not each["Alive"] for each in ray.nodes()
        )

    def close(self) -> None:
        """Leave the cluster, which ends everything that runs there for the job."""
        if self._group is not None:
            remove_placement_group(self._group)
        ray.shutdown()

    def _shortage(self) -> str:
        """Return why there is no room, for the user."""
        free, total = ray.available_resources(), ray.cluster_resources()
        asked = ", ".join(map(str, self._asked))
        all_ = " and ".join(
            f"{free.get(name, 0):g} of {total.get(name, 0):g} {name}"
            for name in ("CPU", "GPU")
        )
        return f"the tasks take {asked}; free are {all_} in all"


def _bundle(resources: Resources) -> dict[str, float]:
    # Ray rejects an empty bundle.
    bundle = {"CPU": resources.cpus or 0.001}
    return {**bundle, "GPU": resources.gpus} if resources.gpus else bundle


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
