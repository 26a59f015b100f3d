"""Tasks as children of one fork server on this machine, and what their pipes say."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from estimator_runtime import threads
from estimator_runtime.config.waits import IMPORT_SECS
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.backends.local import process_tree
from estimator_runtime.launch.backends.local.ports import HeldPorts
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import (
    Ended,
    Events,
    Lost,
    Output,
    Reported,
    Run,
    Task,
    Working,
    report_of,
)
from estimator_runtime.output import log_filter
from estimator_runtime.patching.injection.children import helper_command
from estimator_runtime.signals.inbox import STOP_SIGNALS

_HOST = "127.0.0.1"
_MAX_MESSAGE = 65536
_CLOSE_SECS = 10.0
# The fork server reads at once, unless it is stopped.
_SEND_SECS = 10.0
# How often a silent task is checked within the time after which it is killed.
_CHECKS = 10
# The interval between two checks whether the job is cancelled.
_ASK_SECS = 0.2
# More than a pipe holds, and how long it may take to read that. Once a task has ended,
# only so much is read, because another process may go on writing to its pipe.
_LAST_BYTES, _LAST_SECS = 1 << 21, 5.0
# The interval between two checks whether a task without reports uses the CPU.
_CHECK_SECS = 2.0
# A task that uses this fraction of one core counts as working. On a busy machine with
# many tasks it may get no more. TensorFlow's threads use less while they only wait.
_WORKING_PART = 0.05
# A longer line is split, so that a line without an end cannot fill the memory.
_MAX_LINE = 1 << 20


class Processes:
    """The tasks of one job, each in a process group of its own.

    Args:
        job: The job.
        warm: Whether tasks are forked from a fork server that has imported TensorFlow.
        private_network: Whether the tasks get a network of their own.
        hear_fork_server: Receives each line that the fork server itself writes to
            standard error, in a thread. If None, these lines go to the standard error
            of this process.
        environs: Variables of some tasks, in addition to those of the job.
    """

    def __init__(
        self,
        job: Job,
        warm: bool,
        private_network: bool,
        hear_fork_server: Callable[[str], None] | None = None,
        environs: Mapping[Task, Mapping[str, str]] | None = None,
    ) -> None:
        self._job, self._warm, self._environs = job, warm, environs or {}
        self._hear_fork_server = hear_fork_server
        self._listener: threading.Thread | None = None
        self._private_network = private_network
        self._ports = HeldPorts()
        self._fork_server: Any = None  # the process of the fork server, from open() on
        self._reader: Any = None  # from open() on
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
            # The user follows the output, so what a task prints must not be buffered.
            environ = {**os.environ, **self._job.env, "PYTHONUNBUFFERED": "1"}
            log_filter.set_native_level(environ)
            # Blocked until the fork server ignores them: they are for the launcher.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            try:
                self._fork_server = subprocess.Popen(
                    helper_command(
                        "estimator_runtime.launch.backends.local.fork_server",
                        *(str(theirs.fileno()), str(os.getpid())),
                        "warm" if self._warm else "cold",
                        "private" if self._private_network else "shared",
                        *("run", *self._job.command),
                    ),
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE if self._hear_fork_server else None,
                    pass_fds=[theirs.fileno()],
                )
            except OSError as error:
                reason = error.strerror or error
                raise LaunchError(
                    f"the process that starts the tasks cannot be created: {reason}; "
                    "end other processes, or raise their limit: ulimit -u"
                ) from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._hear_fork_server:
            stderr, hear = self._fork_server.stderr, self._hear_fork_server
            self._listener = threads.start("fork server", _forward_lines, stderr, hear)
            if self._warm:
                hear("importing TensorFlow, once for all tasks")
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
        check_secs = min(_CHECK_SECS, self._job.heartbeat_timeout_secs / _CHECKS)
        self._reader = Reader(self._connection, events, check_secs)

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

    def place(self, addressed: Sequence[Task]) -> dict[Task, str]:
        """Take a free port for each task, and hold it for as long as the job runs."""
        try:
            return {task: f"{_HOST}:{self._ports.hold()}" for task in addressed}
        except OSError as error:
            raise LaunchError(
                f"no port can be reserved for each of {len(addressed)} tasks: "
                f"{error.strerror or error}; end other servers, or start fewer tasks"
            ) from error

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Request a new task from the fork server; see `Tasks.start`."""
        number = len(self._numbers)
        self._numbers[run] = number
        environ = {**self._environs.get(run.task, {}), **environ}
        message = json.dumps({"task": number, "environ": environ}).encode()
        pipes = Pipes(run, self._events)
        problem, remedy = "could not be started", " (see ulimit -n and -u)"
        try:
            pipes.open()
            self._reader.add(number, pipes)
            problem, remedy = "could not be handed to the fork server", ""
            socket.send_fds(self._connection, [message], pipes.theirs)
        except (OSError, RuntimeError) as error:  # of a pipe, a thread, the fork server
            # As the fork server reports it where it has no room for a process.
            why = getattr(error, "strerror", None) or error
            cause = f"{problem}: {why}{remedy}"
            status = -int(signal.SIGKILL)
            self._events.put(Ended(run=run, status=status, cause=cause))
        finally:
            for fd in pipes.theirs:
                os.close(fd)

    def signal(self, run: Run, number: int) -> None:
        """Signal the process group of a run; see `Tasks.signal`.

        A fork server that was stopped with SIGSTOP is continued first.
        """
        self._fork_server.send_signal(signal.SIGCONT)
        message = {"task": self._numbers[run], "signal": int(number)}
        # This blocks only while the socket is full, for up to `_SEND_SECS`.
        with contextlib.suppress(OSError):
            self._connection.send(json.dumps(message).encode())

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
            # A process that hangs in the kernel is left to it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._fork_server.wait(_CLOSE_SECS)
        if self._listener is not None:
            self._listener.join(_CLOSE_SECS)
        if self._reader is not None:
            self._reader.close(_CLOSE_SECS)
        self._connection.close()
        self._ports.close()


def _forward_lines(stream: IO[bytes], hear: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            hear(line.decode(errors="replace").rstrip("\r\n"))


class Pipes:
    """The pipes of one run: standard output, standard error and reports.

    Each has a thread that puts an event for every line. The threads of the output wait
    while nobody takes its lines, and the run then waits with its next ones. They do not
    wait any more once the run has ended.

    Args:
        run: The run.
        events: The queue for the events.

    Attributes:
        run: The run.
        theirs: The ends of the pipes that the run writes to.
        pid: Its pid, once it has started.
        has_news: Whether a report has arrived since this was last set to False.
        cpu_secs: The CPU time at the last check, if the run was silent before it.
    """

    def __init__(self, run: Run, events: Events) -> None:
        self.run, self._events = run, events
        self.pid: int | None = None
        self.has_news = False
        self.cpu_secs: float | None = None
        self._has_ended = threading.Event()
        self.theirs: list[int] = []
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        """Create the pipes, and read each until nobody can write to it any more.

        Raises:
            OSError: If there are no more file descriptors.
            RuntimeError: If there is no room for another thread.
        """
        for target in (self._output, self._error, self._report):
            ours, theirs = os.pipe()
            self.theirs.append(theirs)
            try:
                thread = threads.start(str(self.run.task), self._read, ours, target)
            except RuntimeError:
                os.close(ours)
                raise
            self._threads.append(thread)

    def finish(self, deadline: float) -> None:
        """Forward what the run has last written, until a time; it has ended."""
        self._has_ended.set()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def works(self, elapsed_secs: float) -> bool:
        """Return whether the run has used the CPU instead of sending reports."""
        before, self.cpu_secs = self.cpu_secs, None
        has_news, self.has_news = self.has_news, False
        stat = None if has_news or not self.pid else process_tree.stat_of(self.pid)
        if stat is None:
            return False
        self.cpu_secs = stat.cpu_secs
        return before is not None and (
            stat.cpu_secs - before >= _WORKING_PART * elapsed_secs
        )

    def _read(self, fd: int, put: Callable[[bytes], None]) -> None:
        left = _LAST_BYTES
        with open(fd, "rb") as pipe:
            # Another process may go on writing to the pipe of a run that has ended.
            while left > 0 and (line := pipe.readline(_MAX_LINE)):
                put(line.rstrip(b"\n"))
                left -= len(line) if self._has_ended.is_set() else 0

    def _output(self, line: bytes, is_error: bool = False) -> None:
        self._events.wait_for_room(self._has_ended)
        text = line.decode(errors="replace").rstrip("\r")
        self._events.put(Output(run=self.run, line=text, is_error=is_error))

    def _error(self, line: bytes) -> None:
        self._output(line, is_error=True)

    def _report(self, line: bytes) -> None:
        self.has_news = True
        self._events.put(Reported(run=self.run, report=report_of(line)))


class Reader:
    """A thread that turns the notices of the fork server into events.

    The end of a run comes after everything that the run has written. So does the loss
    of all runs.

    A task cannot report while native code holds Python's global interpreter lock.
    Therefore silent tasks are judged by the CPU time of their processes, and count as
    alive while it grows.

    Args:
        connection: The socket to the fork server. The thread ends when it is closed.
        events: The queue for the events.
        check_secs: The interval, in seconds, between two checks of the CPU time of
            silent tasks.
    """

    def __init__(
        self, connection: socket.socket, events: Events, check_secs: float = _CHECK_SECS
    ) -> None:
        self._connection, self._events = connection, events
        self._check_secs, self._checked_at = check_secs, time.monotonic()
        # Of the runs that have not ended, by the number that the fork server knows.
        self._pipes: dict[int, Pipes] = {}
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._thread = threads.start("output", self._read)

    def add(self, number: int, pipes: Pipes) -> None:
        """Await the end of a run that is about to start.

        Args:
            number: The number by which the fork server knows the run.
            pipes: Its pipes.
        """
        self._pipes[number] = pipes

    def close(self, timeout_secs: float) -> None:
        """Wait for the end of the connection."""
        self._thread.join(timeout_secs)

    def _read(self) -> None:
        """Read until the fork server is gone."""
        while self._hear():
            elapsed = time.monotonic() - self._checked_at
            if elapsed >= self._check_secs:
                self._checked_at += elapsed
                for pipes in list(self._pipes.values()):
                    if pipes.works(elapsed):
                        self._events.put(Working(run=pipes.run))

    def _hear(self) -> bool:
        """Handle one message of the fork server, if one comes; False if it is gone."""
        if not self._poll.poll(1000 * self._check_secs):
            return True
        try:
            message = self._connection.recv(_MAX_MESSAGE)
        except OSError:
            message = b""
        deadline = time.monotonic() + _LAST_SECS
        if not message:
            for pipes in list(self._pipes.values()):
                pipes.finish(deadline)
            self._events.put(Lost(reason="the fork server of the tasks is gone"))
            return False
        notice = json.loads(message)
        if "started" in notice:
            self._pipes[notice["started"]].pid = notice["pid"]
            return True
        pipes = self._pipes.pop(notice["ended"])
        pipes.finish(deadline)
        status, cause = notice["status"], notice.get("cause")
        self._events.put(Ended(run=pipes.run, status=status, cause=cause))
        return True
