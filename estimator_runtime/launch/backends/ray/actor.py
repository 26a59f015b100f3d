"""The Ray actor of one task, which runs the task's processes on a node.

It also reserves the task's port.
"""

import contextlib
import os
import queue
import threading
import time

import ray

from estimator_runtime.launch.backends.local.ports import HeldPorts
from estimator_runtime.launch.backends.local.processes import Processes
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import Ended, Event, Events, Lost, Output, Run

# The number of events in one answer.
_MAX_EVENTS = 1000
_POLL_SECS = 5.0
# For a new file to be seen on a network file system, and between two looks.
_SEEN_SECS = 5.0
_LOOK_SECS = 0.5
# How long a task goes on running when its events are no longer polled. The supervisor,
# which may have lost the connection, waits as long before it starts the task elsewhere.
# So this is short, but no shorter than the default heartbeat timeout, the silence after
# which a task counts as failed.
LEASE_SECS = 30.0


class TaskActor:
    """Starts, signals and watches one task, on the node where Ray has placed it.

    Ray executes calls in their order, with three exceptions, each of which has a thread
    of its own: `poll`, `where`, and `sees`, which may hang in the model directory. The
    task ends with the actor, however the actor ends.

    Args:
        job: The job that the task belongs to.
        folder: The working directory of the task; None for the one that Ray has chosen
            for the actor.
        lease_secs: How long the task goes on running after the last answer that is
            known to have arrived.
    """

    def __init__(
        self, job: Job, folder: str | None, lease_secs: float = LEASE_SECS
    ) -> None:
        if folder is not None:
            os.chdir(folder)
        self._is_behind = False  # the caller of `poll`
        self._events = Events(lambda: self._is_behind)
        self._ports = HeldPorts()
        self._batch: list[Event] = []
        self._number = 0
        # A cold fork server: a warm one would import TensorFlow for a single task.
        self._processes = Processes(job, warm=False, private_network=False)
        self._processes.open(self._events)
        self._is_followed = threading.Event()
        self._is_closed = False
        self._answered_at = self._heard_at = time.monotonic()
        self._lease_secs = lease_secs
        threading.Thread(target=self._end_with_lease, daemon=True).start()

    # In a group of its own, because `start` blocks the default one until `poll` has
    # been called, and whoever polls calls this first.
    @ray.method(concurrency_group="place")
    def where(self, takes_port: bool = False) -> tuple[str, str, str, int | None]:
        """Return where the task is, and reserve another free port if it needs one.

        Returns:
            The id and the address of the node, the task's directory, and the port.
        """
        port = None
        if takes_port:
            self._ports.close()
            [port] = self._ports.take(1)
        node = ray.get_runtime_context().get_node_id()
        return node, ray.util.get_node_ip_address(), os.getcwd(), port

    def start(
        self,
        run: Run,
        environ: dict[str, str],
        address: tuple[str, int] | None,
        leases: dict[str, float],
    ) -> None:
        """Start the task, which may listen at an address.

        If it cannot have that address, the run ends at once, and the whole job needs
        new addresses.

        Args:
            run: The run.
            environ: Variables of the task, in addition to those of the job.
            address: The id of a node and the port there; None if the task has no
                address and any node is suitable.
            leases: For each node that earlier runs were started on, by its id, the
                seconds until these have ended even if nobody can reach the node.
        """
        # Once the caller has received an answer, it knows when the lease ends at the
        # latest.
        self._is_followed.wait()
        here, *_ = self.where()
        try:
            if address is not None and address[0] != here:
                raise OSError("its node is gone")
            if address is not None:
                self._ports.hold(address[1])
        except OSError as error:
            cause = f"cannot get its address again: {error.strerror or error}"
            self._events.put(Ended(run=run, status=-1, cause=cause, is_displaced=True))
            return
        left = max((leases[node] for node in leases if node != here), default=0.0)
        if left > 0:
            line = f"waiting {left:.0f} s for the last run, on a lost node, to end"
            self._events.put(Output(run=run, line=line, is_error=True))
            time.sleep(left)
        self._processes.start(run, environ)

    def signal(self, run: Run, number: int) -> None:
        """Send a signal to a run of the task and to its children."""
        self._processes.signal(run, number)

    @ray.method(concurrency_group="events")
    def poll(self, number: int, takes_lines: bool = True) -> list[Event]:
        """Return the next events, waiting for some time if there are none.

        The first call does not wait.

        Args:
            number: The number of answers that the caller has received. If the last
                answer is not among them, it is returned again.
            takes_lines: Whether the caller has room for more lines. If not, the task
                has to wait before it can write more.
        """
        self._is_behind = not takes_lines
        if number < self._number:
            self._answered_at = time.monotonic()
            return self._batch
        # The last answer has arrived, no earlier than it was sent. The lease starts
        # anew then.
        self._heard_at = self._answered_at
        if number:
            self._is_followed.set()
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(_POLL_SECS if number else 0))
            while len(events) < _MAX_EVENTS:
                events.append(self._events.get(0))
        if self._is_closed:  # then the end of the fork server is no loss
            events = [event for event in events if not isinstance(event, Lost)]
        self._batch, self._number = events, number + 1
        self._answered_at = time.monotonic()
        return events

    @ray.method(concurrency_group="files")
    def sees(self, path: str) -> bool:
        """Return whether a new file can be seen here, which may take some seconds."""
        deadline = time.monotonic() + _SEEN_SECS
        while not os.path.exists(path):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECS)
        return True

    def close(self) -> None:
        """Kill everything that still runs, and wait for its end."""
        self._is_closed = True
        self._processes.close()
        self._ports.close()

    def _end_with_lease(self) -> None:
        """End the task and the actor when the lease is over.

        The supervisor has lost the connection by then, and starts the task elsewhere.
        """
        while (left := self._heard_at + self._lease_secs - time.monotonic()) > 0:
            time.sleep(left)
        self._processes.close()
        os._exit(1)
