"""Tasks as children of one parent process of this machine; see `task.Tasks`."""

import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from typing import Any

from estimator_runtime.cluster import Cluster
from estimator_runtime.errors import LaunchError
from estimator_runtime.helper_process import helper_command
from estimator_runtime.launch import descendants
from estimator_runtime.launch.ports import HeldPorts
from estimator_runtime.launch.reader import LOOK_SECS, Reader
from estimator_runtime.launch.task import STOP_SIGNALS, Lost
from estimator_runtime.reporting import JOB_VARIABLE
from estimator_runtime.waits import IMPORT_SECS

_HOST = "127.0.0.1"
_MAX_MESSAGE = 65536
_CLOSE_SECS = 10.0
# The parent reads at once, unless it is stopped.
_SEND_SECS = 10.0
# So often a silent task is looked at within the time after which it would be killed.
_LOOKS = 10
# Until it is asked again whether the job is cancelled.
_ASK_SECS = 0.2


class Processes:
    """Runs the tasks of one job; each is a group of processes of its own."""

    def __init__(self, job, warm, private_network, hear_parent=None):
        """Know the job; start nothing.

        Args:
            job: The `Job`.
            warm: Whether tasks are forked from a parent that has imported TensorFlow.
            private_network: Whether they get a network of their own.
            hear_parent: Called with each line that the parent itself writes to standard
                error, by a thread; None leaves them to that of this process.
        """
        self._job, self._warm = job, warm
        self._hear_parent, self._listener = hear_parent, None
        self._private_network = private_network
        self._ports = HeldPorts()
        self._parent: Any = None  # its process, from open() on
        self._reader: Any = None  # from open() on
        self._family = uuid.uuid4().hex
        self._numbers = {}  # of runs, on the wire

    def open(self, events, is_cancelled=lambda: False):
        """Start the parent, and wait until it can start tasks; see `Tasks.open`."""
        self._events = events
        self._connection, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with theirs:
            theirs.set_inheritable(True)
            # Until it takes none itself: they are for the launcher.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            try:
                self._parent = subprocess.Popen(
                    helper_command(
                        "estimator_runtime.launch.parent",
                        *(str(theirs.fileno()), str(os.getpid())),
                        "warm" if self._warm else "cold",
                        "private" if self._private_network else "shared",
                        *("run", *self._job.command),
                    ),
                    env=self._environ(),
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE if self._hear_parent else None,
                    pass_fds=[theirs.fileno()],
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._hear_parent:
            self._listener = threading.Thread(
                target=self._listen,
                args=(self._parent.stderr,),
                name="estimator_runtime parent",
                daemon=True,
            )
            self._listener.start()
        answer = self._first_answer(is_cancelled)
        if answer is None or (not answer and is_cancelled()):
            return
        if not answer:
            raise LaunchError(
                "the process that starts the tasks ended before it could; what it "
                "wrote is above"
            )
        if "refused" in json.loads(answer):
            raise LaunchError(json.loads(answer)["refused"])
        look_secs = min(LOOK_SECS, self._job.heartbeat_timeout_secs / _LOOKS)
        self._reader = Reader(self._connection, events, look_secs)

    def _first_answer(self, is_cancelled):
        """Give the parent's first message, b"" at its end; None if cancelled before."""
        deadline = time.monotonic() + IMPORT_SECS
        self._connection.settimeout(_ASK_SECS)
        while not is_cancelled():
            try:
                answer = self._connection.recv(_MAX_MESSAGE)
            except TimeoutError as error:
                if time.monotonic() < deadline:
                    continue
                raise LaunchError(
                    f"TensorFlow was not imported within {IMPORT_SECS:g} s; is the "
                    "machine busy, or its disk slow?"
                ) from error
            self._connection.settimeout(_SEND_SECS)
            return answer
        return None

    def place(self, addressed):
        """Take a free port for each task, and hold it for as long as the job runs."""
        self._ports.close()
        jobs = collections.defaultdict(list)
        ports = self._ports.take(len(addressed))
        for task, port in zip(addressed, ports, strict=True):
            jobs[task.type].append(f"{_HOST}:{port}")
        return Cluster(jobs)

    def start(self, run, environ):
        """Ask the parent for a new task."""
        pipes = [os.pipe() for _ in range(3)]
        number = len(self._numbers)
        self._numbers[run] = number
        self._reader.add(number, run, [reader for reader, _ in pipes])
        theirs = [writer for _, writer in pipes]
        message = json.dumps({"task": number, "environ": environ}).encode()
        try:
            socket.send_fds(self._connection, [message], theirs)
        except OSError as error:
            reason = f"the parent of the tasks does not take a new one: {error}"
            self._events.put(Lost(reason=reason))
        finally:
            for fd in theirs:
                os.close(fd)

    def signal(self, run, number):
        """Signal the run's group of processes, also where the parent is stopped.

        A parent that was stopped (SIGSTOP) goes on: it has to tell of the run's end.
        """
        self._parent.send_signal(signal.SIGCONT)
        pid = self._reader.pid_of(self._numbers[run])
        if pid is None:  # it is about to start, or has ended
            message = {"task": self._numbers[run], "signal": int(number)}
            # It is waited for only if its socket is full, for `_SEND_SECS`.
            with contextlib.suppress(OSError):
                self._connection.send(json.dumps(message).encode())
            return
        stat = descendants.stat_of(pid)
        # If the run has just ended, the pid may be that of somebody else.
        if stat is not None and stat.parent == self._parent.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)

    def close(self):
        """Let the parent kill all that is left, and wait for its end."""
        if self._parent is None:
            return
        # The end of the connection, for both the parent and our reader.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._parent.send_signal(signal.SIGCONT)  # it has to see that
        if self._reader is None:
            self._parent.kill()  # it has started nobody, and may be importing yet
        try:
            self._parent.wait(_CLOSE_SECS)
        except subprocess.TimeoutExpired:
            self._parent.kill()
            self._parent.wait()
        if self._listener is not None:
            self._listener.join(_CLOSE_SECS)
        if self._parent.returncode:  # it was killed, and could not clear up
            descendants.kill_family(self._family)
        if self._reader is not None:
            self._reader.close(_CLOSE_SECS)
        self._connection.close()
        self._ports.close()

    def _environ(self):
        return {
            **os.environ,
            **self._job.env,
            JOB_VARIABLE: uuid.uuid4().hex,
            descendants.FAMILY_VARIABLE: self._family,
            # A person reads along: what a task prints must not wait in a buffer.
            "PYTHONUNBUFFERED": "1",
        }

    def _listen(self, stream):
        with stream:
            for line in stream:
                self._hear_parent(line.decode(errors="replace").rstrip("\r\n"))
