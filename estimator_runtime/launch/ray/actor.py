"""The actor of one task: holds its port, and runs its processes on a node of Ray."""

import contextlib
import os
import queue
import threading
import time

import ray

from estimator_runtime.launch.events import Events
from estimator_runtime.launch.ports import HeldPorts
from estimator_runtime.launch.processes import Processes
from estimator_runtime.launch.task import Ended, Lost

# Events in one answer.
_MAX_EVENTS = 1000
_POLL_SECS = 5.0
# How long a task lives on when nobody asks for its events: the supervisor may have
# started it elsewhere. It waits for as long before it does so. So it is short, but no
# shorter than the silence after which a task counts as failed, by default.
LEASE_SECS = 30.0


class TaskActor:
    """Starts, signals and watches one task on the node that Ray has put it on.

    Calls are done in their order; but `poll`, `where`, and what reads and writes the
    model directory and may hang there, have a thread of their own each. The task ends
    with the actor, however that ends.
    """

    def __init__(self, job, folder, lease_secs=LEASE_SECS):
        """Get ready to start the task.

        Args:
            job: The `Job`.
            folder: Where its tasks run; None for where Ray has put the actor.
            lease_secs: How long the task lives on after the last answer of which it
                is certain that it has arrived.
        """
        if folder is not None:
            os.chdir(folder)
        self._is_behind = False  # who polls
        self._events = Events(lambda: self._is_behind)
        self._ports = HeldPorts()
        self._batch, self._number = [], 0
        # Plain processes: a parent that has imported TensorFlow would serve one task.
        self._processes = Processes(job, warm=False, private_network=False)
        self._processes.open(self._events)
        self._is_followed = threading.Event()
        self._is_closed = False
        self._answered_at = self._heard_at = time.monotonic()
        self._lease_secs = lease_secs
        threading.Thread(target=self._end_with_lease, daemon=True).start()

    @ray.method(concurrency_group="place")  # `start` may wait for who asks this
    def where(self):
        """Give the id and the address of the node, and the folder of the task."""
        node = ray.get_runtime_context().get_node_id()
        return node, ray.util.get_node_ip_address(), os.getcwd()

    def take_port(self):
        """Take a free port for the task, and hold it; gives up the one before."""
        self._ports.close()
        return self._ports.take(1)[0]

    def start(self, run, environ, port, node):
        """Start the task, which may listen on a port of a node.

        If that cannot be, the run ends at once, and the whole job needs new addresses.

        Args:
            run: The `Run`.
            environ: Variables of the task, beside those of the job.
            port: The port; None if it has none.
            node: The id of the node; None if any will do.
        """
        # From here on who has called knows how long it may live on without him.
        self._is_followed.wait()
        here, _, _ = self.where()
        try:
            if node not in (None, here):
                raise OSError("its node is gone")
            if port is not None:
                self._ports.hold(port)
        except OSError as error:
            cause = f"cannot have its address again: {error.strerror or error}"
            self._events.put(Ended(run=run, status=-1, cause=cause, is_displaced=True))
            return
        try:
            self._processes.start(run, environ)
        except Exception as error:  # noqa: BLE001 - nobody waits for this call
            cause = f"could not be started on its node: {error}"
            self._events.put(Ended(run=run, status=-1, cause=cause))

    def signal(self, run, number):
        """Send a signal to a run of the task and its children."""
        self._processes.signal(run, number)

    @ray.method(concurrency_group="events")
    def poll(self, number, takes_lines=True):
        """Give the next events, after a while also none; the first time at once.

        Args:
            number: How many answers the caller has had: the last is given again if
                that is less than there were.
            takes_lines: Whether the caller has room for more lines; else the task
                waits with them.

        Returns:
            A list of `task.Event`.
        """
        self._is_behind = not takes_lines
        if number < self._number:
            self._answered_at = time.monotonic()
            return self._batch
        # The last answer has arrived, and not before this time: the lease begins anew.
        self._heard_at = self._answered_at
        if number:
            self._is_followed.set()
        events = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(_POLL_SECS if number else 0))
            while len(events) < _MAX_EVENTS:
                events.append(self._events.get(0))
        if self._is_closed:  # then it is no loss
            events = [event for event in events if not isinstance(event, Lost)]
        self._batch, self._number = events, number + 1
        self._answered_at = time.monotonic()
        return events

    @ray.method(concurrency_group="files")
    def write_token(self, path):
        """Make an empty file and its folder; give what went wrong, or None."""
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "x"):
                return None
        except OSError as error:
            return error.strerror or str(error)

    @ray.method(concurrency_group="files")
    def seen_tokens(self, paths):
        """Give those of the files that are there."""
        return [path for path in paths if os.path.isfile(path)]

    @ray.method(concurrency_group="files")
    def remove_token(self, path):
        """Remove a file, if it is there."""
        with contextlib.suppress(OSError):
            os.remove(path)

    def close(self):
        """Kill what still runs, and wait for its end."""
        self._is_closed = True
        self._processes.close()
        self._ports.close()

    def _end_with_lease(self):
        """End the task and its actor when the supervisor has heard nothing for long.

        It is cut off then, and about to start the task on another node.
        """
        while (left := self._heard_at + self._lease_secs - time.monotonic()) > 0:
            time.sleep(left)
        self._processes.close()
        os._exit(1)
