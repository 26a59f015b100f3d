"""The Ray actor of one task, which runs the task's processes on a node."""

import contextlib
import os
import queue
import time
from collections.abc import Mapping

import ray

import estimator_runtime
from estimator_runtime import threads
from estimator_runtime.errors import CompatibilityError, LaunchError
from estimator_runtime.launch.backends.local.ports import HeldPorts
from estimator_runtime.launch.backends.local.processes import Processes
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import Event, Events, Lost, Run
from estimator_runtime.tf_internals import versions

# The number of events in one answer.
_MAX_EVENTS = 1000
_POLL_SECS = 5.0
# How long a task goes on running when its events are no longer polled. A job that may
# have lost the connection waits as long before it ends. So this is short, but no
# shorter than the default heartbeat timeout, the silence after which a task counts as
# failed.
LEASE_SECS = 30.0
# How long to wait for a port, which is less than the caller waits for an answer.
_PORT_SECS = 10.0


class TaskActor:
    """Starts, signals and watches one task, on the node where Ray has placed it.

    Ray executes calls in their order, except for `poll`, which blocks and has a thread
    of its own. The task ends with the actor, however the actor ends.

    Args:
        job: The job that the task belongs to.
        folder: The working directory of the task; None for the copy that Ray has made.
        expected: The versions that this node has to have; see `installed`.
        lease_secs: How long the task goes on running after the last answer that is
            known to have arrived.

    Raises:
        LaunchError: If this node has other versions.
        OSError: If it has no such folder.
    """

    def __init__(
        self,
        job: Job,
        folder: str | None,
        expected: Mapping[str, str],
        lease_secs: float = LEASE_SECS,
    ) -> None:
        if folder is not None:
            os.chdir(folder)
        problem = version_problem(installed(), expected)
        if problem is not None:
            raise LaunchError(
                f"node {ray.util.get_node_ip_address()} {problem}; install the same "
                "versions on all nodes"
            )
        self._events = Events()
        self._ports = HeldPorts()
        self._batch: list[Event] = []
        self._number = 0
        # A cold fork server: a warm one would import TensorFlow for a single task.
        self._processes = Processes(job, warm=False, private_network=False)
        self._processes.open(self._events)
        self._is_closed = False
        self._answered_at = self._heard_at = time.monotonic()
        self._lease_secs = lease_secs
        threads.start("lease", self._end_with_lease)

    def where(self, takes_port: bool = False) -> tuple[str, str, int | None]:
        """Return where the task is, and reserve a new port for it if it needs one.

        Returns:
            The id and the address of the node, and the port.
        """
        port = self._ports.hold() if takes_port else None
        node = ray.get_runtime_context().get_node_id()
        return node, ray.util.get_node_ip_address(), port

    def start(self, run: Run, environ: dict[str, str], port: int | None) -> None:
        """Start the task, which may listen on a port.

        Raises:
            OSError: If another process has taken the port.
        """
        # A task whose actor has died may take some time to free its memory and port.
        until = time.monotonic() + _PORT_SECS
        while port is not None:
            try:
                self._ports.hold(port)
                break
            except OSError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_PORT_SECS / 20)
        self._processes.start(run, environ)

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run of the task and to its children."""
        self._processes.signal(run, number)

    @ray.method(concurrency_group="events")
    def poll(self, number: int) -> list[Event]:
        """Return the next events, waiting for some time if there are none.

        Args:
            number: The number of answers that the caller has received. If the last
                answer is not among them, it is returned again.
        """
        if number < self._number:
            self._answered_at = time.monotonic()
            return self._batch
        # The last answer has arrived, no earlier than it was sent. The lease starts
        # anew then.
        self._heard_at = self._answered_at
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(_POLL_SECS))
            while len(events) < _MAX_EVENTS:
                events.append(self._events.get(0))
        if self._is_closed:  # then the end of the fork server is no loss
            events = [event for event in events if not isinstance(event, Lost)]
        self._batch, self._number = events, number + 1
        self._answered_at = time.monotonic()
        return events

    def close(self) -> None:
        """Kill everything that still runs, and wait for its end."""
        self._is_closed = True
        self._processes.close()
        self._ports.close()

    def _end_with_lease(self) -> None:
        """End the task and the actor when the lease is over."""
        while (left := self._heard_at + self._lease_secs - time.monotonic()) > 0:
            time.sleep(left)
        self._processes.close()
        os._exit(1)


def installed() -> dict[str, str]:
    """Return the versions of this package and of TensorFlow, if that is installed."""
    found = {"estimator_runtime": estimator_runtime.__version__}
    with contextlib.suppress(CompatibilityError):
        found["TensorFlow"] = versions.tensorflow_version()
    return found


def version_problem(
    found: Mapping[str, str], expected: Mapping[str, str]
) -> str | None:
    """Return how a node differs from the machine of the launcher, or None.

    The launcher needs no TensorFlow, but a node does.

    Args:
        found: What `installed` returns on the node.
        expected: What it returns on the machine of the launcher.
    """
    if "TensorFlow" not in found:
        return "has no TensorFlow, which tasks need"
    for name, version in expected.items():
        if found[name] != version:
            return f"has {name} {found[name]}, and this machine {version}"
    return None
