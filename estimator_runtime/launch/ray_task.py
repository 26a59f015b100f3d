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
from estimator_runtime.launch.task import Ended

# Events in one answer.
_MAX_EVENTS = 1000
_POLL_SECS = 5.0
_LEAST_LEASE_SECS = 60.0


class TaskActor:
    """Starts, signals and watches one task on the node that Ray has put it on.

    Calls are done in their order, but for `poll`, which has a thread of its own. The
    task ends with the actor, however that ends.
    """

    def __init__(self, job, folder, lease_secs=None):
        """Get ready to start the task.

        Args:
            job: The `Job`.
            folder: Where its tasks run; None for where Ray has put the actor.
            lease_secs: How long the task lives on when nobody polls; None for twice
                the time after which a silent task counts as failed, a minute at least.
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
        self._asked_at = time.monotonic()
        self._lease_secs = lease_secs or max(
            _LEAST_LEASE_SECS, 2 * job.heartbeat_timeout_secs
        )
        threading.Thread(target=self._end_with_lease, daemon=True).start()

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
        self._processes.start(run, environ)

    def signal(self, run, number):
        """Send a signal to a run of the task and its children."""
        self._processes.signal(run, number)

    @ray.method(concurrency_group="events")
    def poll(self, number, takes_lines=True):
        """Give the next events, after a while also none.

        Args:
            number: How many answers the caller has had: the last is given again if
                that is less than there were.
            takes_lines: Whether the caller has room for more lines; else the task
                waits with them.

        Returns:
            A list of `task.Event`.
        """
        self._asked_at = time.monotonic()
        self._is_behind = not takes_lines
        if number < self._number:
            return self._batch
        events = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(_POLL_SECS))
            while len(events) < _MAX_EVENTS:
                events.append(self._events.get(0))
        self._batch, self._number = events, number + 1
        self._asked_at = time.monotonic()
        return events

    def write_token(self, path):
        """Make an empty file and its folder; give what went wrong, or None."""
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "x"):
                return None
        except OSError as error:
            return error.strerror or str(error)

    def seen_tokens(self, paths):
        """Give those of the files that are there."""
        return [path for path in paths if os.path.isfile(path)]

    def remove_token(self, path):
        """Remove a file, if it is there."""
        with contextlib.suppress(OSError):
            os.remove(path)

    def close(self):
        """Kill what still runs, and wait for its end."""
        self._processes.close()
        self._ports.close()

    def _end_with_lease(self):
        """End the task and its actor when the supervisor has not asked for long.

        It is cut off then, and may have started the task on another node.
        """
        while time.monotonic() - self._asked_at < self._lease_secs:
            time.sleep(min(_POLL_SECS, self._lease_secs / 4))
        self._processes.close()
        os._exit(1)
