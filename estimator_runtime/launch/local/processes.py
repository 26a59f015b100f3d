"""Tasks as children of one fork server on this machine; see `task.Tasks`."""

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
from collections.abc import Callable, Sequence
from typing import IO, Any

from estimator_runtime.compat.inject.children import helper_command
from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.waits import IMPORT_SECS
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.local import process_tree
from estimator_runtime.launch.local.pipes import LOOK_SECS, Reader
from estimator_runtime.launch.local.ports import HeldPorts
from estimator_runtime.launch.task import STOP_SIGNALS, Events, Lost, Run, Task
from estimator_runtime.reporting import JOB_VARIABLE

_HOST = "127.0.0.1"
_MAX_MESSAGE = 65536
_CLOSE_SECS = 10.0
# The fork server reads at once, unless it is stopped.
_SEND_SECS = 10.0
# How often a silent task is checked within the time after which it is killed.
_LOOKS = 10
# The interval between two checks whether the job is cancelled.
_ASK_SECS = 0.2


class Processes:
    """The tasks of one job, each in a process group of its own.

    Args:
        job: The job.
        warm: Whether tasks are forked from a fork server that has imported TensorFlow.
        private_network: Whether the tasks get a network of their own.
        hear_fork_server: Receives each line that the fork server itself writes to
            standard error, in a thread. If None, these lines go to the standard error
            of this process.
    """

    def __init__(
        self,
        job: Job,
        warm: bool,
        private_network: bool,
        hear_fork_server: Callable[[str], None] | None = None,
    ) -> None:
        self._job, self._warm = job, warm
        self._hear_fork_server = hear_fork_server
        self._listener: threading.Thread | None = None
        self._private_network = private_network
        self._ports = HeldPorts()
        self._fork_server: Any = None  # the process of the fork server, from open() on
        self._reader: Any = None  # from open() on
        self._family = uuid.uuid4().hex
        self._numbers: dict[Run, int] = {}  # by which the fork server knows the runs

    def open(
        self, events: Events, is_cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Start the fork server, and wait until it is ready; see `Tasks.open`."""
        self._events = events
        self._connection, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with theirs:
            theirs.set_inheritable(True)
            # Blocked until the fork server ignores them: they are for the launcher.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            try:
                self._fork_server = subprocess.Popen(
                    helper_command(
                        "estimator_runtime.launch.local.fork_server",
                        *(str(theirs.fileno()), str(os.getpid())),
                        "warm" if self._warm else "cold",
                        "private" if self._private_network else "shared",
                        *("run", *self._job.command),
                    ),
                    env=self._environ(),
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE if self._hear_fork_server else None,
                    pass_fds=[theirs.fileno()],
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._hear_fork_server:
            self._listener = threading.Thread(
                target=_forward_lines,
                args=(self._fork_server.stderr, self._hear_fork_server),
                name="estimator_runtime fork server",
                daemon=True,
            )
            self._listener.start()
        answer = self._first_answer(is_cancelled)
        if not answer and is_cancelled():
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

    def _first_answer(self, is_cancelled: Callable[[], bool]) -> bytes:
        """Return the first message of the fork server.

        It is b"" if the fork server has ended, or the job is cancelled first.

        Raises:
            LaunchError: If there is no message in time.
        """
        deadline = time.monotonic() + IMPORT_SECS
        self._connection.settimeout(_ASK_SECS)
        while not is_cancelled():
            with contextlib.suppress(TimeoutError):
                answer = self._connection.recv(_MAX_MESSAGE)
                self._connection.settimeout(_SEND_SECS)
                return answer
            if time.monotonic() >= deadline:
                raise LaunchError(
                    f"TensorFlow was not imported within {IMPORT_SECS:g} s; is the "
                    "machine busy, or its disk slow?"
                )
        return b""

    def place(self, addressed: Sequence[Task]) -> Cluster:
        """Take a free port for each task, and hold it for as long as the job runs."""
        self._ports.close()
        jobs: collections.defaultdict[str, list[str]] = collections.defaultdict(list)
        ports = self._ports.take(len(addressed))
        for task, port in zip(addressed, ports, strict=True):
            jobs[task.type].append(f"{_HOST}:{port}")
        return Cluster(jobs)

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Request a new task from the fork server."""
        pipes = [os.pipe() for _ in range(3)]
        number = len(self._numbers)
        self._numbers[run] = number
        self._reader.add(number, run, [reader for reader, _ in pipes])
        theirs = [writer for _, writer in pipes]
        message = json.dumps({"task": number, "environ": environ}).encode()
        try:
            socket.send_fds(self._connection, [message], theirs)
        except OSError as error:
            reason = f"the fork server does not accept another task: {error}"
            self._events.put(Lost(reason=reason))
        finally:
            for fd in theirs:
                os.close(fd)

    def signal(self, run: Run, number: int) -> None:
        """Signal the process group of a run, even if the fork server is stopped.

        A fork server that was stopped with SIGSTOP is continued, because it has to
        report the end of the run.
        """
        self._fork_server.send_signal(signal.SIGCONT)
        pid = self._reader.pid_of(self._numbers[run])
        if pid is None:  # it is about to start, or has ended
            message = {"task": self._numbers[run], "signal": int(number)}
            # This blocks only while the socket is full, for up to `_SEND_SECS`.
            with contextlib.suppress(OSError):
                self._connection.send(json.dumps(message).encode())
            return
        stat = process_tree.stat_of(pid)
        # If the run has just ended, another process may have its pid.
        if stat is not None and stat.parent == self._fork_server.pid:
            process_tree.signal_group(pid, number)

    def close(self) -> None:
        """Make the fork server kill everything that is left, and wait for its end."""
        if self._fork_server is None:
            return
        # Ends the connection for both the fork server and the reader.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._fork_server.send_signal(signal.SIGCONT)  # so that it notices
        if self._reader is None:
            self._fork_server.kill()  # it has no task, and may still be importing
        try:
            self._fork_server.wait(_CLOSE_SECS)
        except subprocess.TimeoutExpired:
            self._fork_server.kill()
            self._fork_server.wait()
        if self._listener is not None:
            self._listener.join(_CLOSE_SECS)
        if self._fork_server.returncode:  # it was killed, and could not clean up
            process_tree.kill_family(self._family)
        if self._reader is not None:
            self._reader.close(_CLOSE_SECS)
        self._connection.close()
        self._ports.close()

    def _environ(self) -> dict[str, str]:
        """Return the environment of the fork server and its tasks."""
        return {
            **os.environ,
            **self._job.env,
            JOB_VARIABLE: uuid.uuid4().hex,
            process_tree.FAMILY_VARIABLE: self._family,
            # The user follows the output, so what a task prints must not be buffered.
            "PYTHONUNBUFFERED": "1",
        }


def _forward_lines(stream: IO[bytes], hear: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            hear(line.decode(errors="replace").rstrip("\r\n"))
