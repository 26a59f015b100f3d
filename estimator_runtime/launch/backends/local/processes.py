"""Tasks as children of one fork server on this machine, and what their pipes say."""

import collections
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import IO, Any

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.waits import IMPORT_SECS
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.backends.local import process_tree
from estimator_runtime.launch.backends.local.ports import HeldPorts
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.task import (
    STOP_SIGNALS,
    Ended,
    Event,
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
from estimator_runtime.reporting import JOB_VARIABLE

_HOST = "127.0.0.1"
_MAX_MESSAGE = 65536
_CLOSE_SECS = 10.0
# The fork server reads at once, unless it is stopped.
_SEND_SECS = 10.0
# How often a silent task is checked within the time after which it is killed.
_CHECKS = 10
# The interval between two checks whether the job is cancelled.
_ASK_SECS = 0.2
_CHUNK = 65536
# More than a pipe holds. Once a task has ended, only that much is read, because another
# process may go on writing to its pipe.
_LAST_CHUNKS = 32
# The interval between two checks whether there is room for lines again.
_WAIT_SECS = 0.05
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
                        "estimator_runtime.launch.backends.local.fork_server",
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
            except OSError as error:
                reason = error.strerror or error
                raise LaunchError(
                    f"the process that starts the tasks cannot be created: {reason}; "
                    "end other processes, or raise their limit: ulimit -u"
                ) from error
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

    def place(self, addressed: Sequence[Task]) -> Cluster:
        """Take a free port for each task, and hold it for as long as the job runs."""
        self._ports.close()
        jobs: collections.defaultdict[str, list[str]] = collections.defaultdict(list)
        try:
            ports = self._ports.take(len(addressed))
        except OSError as error:
            raise LaunchError(
                f"no port can be reserved for each of {len(addressed)} tasks: "
                f"{error.strerror or error}; end other servers, or start fewer tasks"
            ) from error
        for task, port in zip(addressed, ports, strict=True):
            jobs[task.type].append(f"{_HOST}:{port}")
        return Cluster(jobs)

    def start(self, run: Run, environ: dict[str, str]) -> None:
        """Request a new task from the fork server; see `Tasks.start`."""
        number = len(self._numbers)
        self._numbers[run] = number
        try:
            pipes = [os.pipe() for _ in range(3)]
        except OSError as error:
            # As the fork server reports it where it has no room for a process.
            cause = f"could not be started: {error.strerror} (see ulimit -n)"
            status = -int(signal.SIGKILL)
            self._events.put(Ended(run=run, status=status, cause=cause))
            return
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
            # A process that hangs in the kernel is left to it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._fork_server.wait(_CLOSE_SECS)
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
        environ = {**os.environ, **self._job.env}
        log_filter.set_native_level(environ)
        return {
            **environ,
            JOB_VARIABLE: uuid.uuid4().hex,
            **process_tree.marks_of(self._family),
            # The user follows the output, so what a task prints must not be buffered.
            "PYTHONUNBUFFERED": "1",
        }


def _forward_lines(stream: IO[bytes], hear: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            hear(line.decode(errors="replace").rstrip("\r\n"))


class Reader:
    """A thread that turns what tasks write and report into events.

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
        self._pids: dict[int, int] = {}  # of running tasks, by number
        # Of the tasks that were silent at the last check, the CPU time used by then.
        self._cpu_secs: dict[int, float] = {}
        self._runs: dict[int, Run] = {}  # by the number that the fork server knows
        # Of the runs that have not ended: standard output and error, and reports.
        self._streams: dict[int, list[_Stream]] = {}
        self._selector = selectors.EpollSelector()
        self._selector.register(connection, selectors.EVENT_READ, None)
        # A selector inside the other one, so that reading of all lines can be paused at
        # once.
        self._lines = selectors.EpollSelector()
        self._selector.register(self._lines, selectors.EVENT_READ, self._lines)
        self._thread = threading.Thread(
            target=self._read, name="estimator_runtime output", daemon=True
        )
        self._thread.start()

    def add(self, number: int, run: Run, fds: Sequence[int]) -> None:
        """Read the pipes of a run that is about to start, and close them at its end.

        Args:
            number: The number by which the fork server knows the run.
            run: The run.
            fds: The pipes of its standard output, its standard error and its reports.
        """
        self._runs[number] = run
        streams = [
            _Stream(run, fd, event)
            for fd, event in zip(fds, (_output, _error, _report), strict=True)
        ]
        for fd, stream in zip(fds, streams, strict=True):
            os.set_blocking(fd, False)
            self._selector_of(stream).register(fd, selectors.EVENT_READ, stream)
        # Only now may they be closed, as the loss of the fork server may do at once.
        self._streams[number] = streams

    def pid_of(self, number: int) -> int | None:
        """Return the pid of a run, or None before it has started and after its end."""
        return self._pids.get(number)

    def close(self, timeout_secs: float) -> None:
        """Wait for the end of the connection, and close all pipes."""
        self._thread.join(timeout_secs)
        if self._thread.is_alive():
            return
        for streams in self._streams.values():
            for stream in streams:
                self._close(stream)
        self._lines.close()
        self._selector.close()

    def _read(self) -> None:
        """Read everything until the fork server is gone."""
        are_read = True
        while True:
            if are_read != self._events.takes_lines():
                are_read = not are_read
                if are_read:
                    self._selector.register(
                        self._lines, selectors.EVENT_READ, self._lines
                    )
                else:
                    self._selector.unregister(self._lines)
            self._check_work()
            wait_secs = self._check_secs if are_read else _WAIT_SECS
            for key, _ in self._selector.select(wait_secs):
                if key.data is self._lines:
                    self._read_lines()
                elif key.data is not None:
                    self._drain(key.data)
                elif not self._hear():
                    return

    def _check_work(self) -> None:
        """Put an event for each task that sends no reports but uses the CPU."""
        elapsed = time.monotonic() - self._checked_at
        if elapsed < self._check_secs:
            return
        self._checked_at += elapsed
        before, self._cpu_secs = self._cpu_secs, {}
        for number, pid in self._pids.items():
            reports = self._streams[number][-1]
            has_news, reports.has_news = reports.has_news, False
            stat = None if has_news else process_tree.stat_of(pid)
            if stat is None:
                continue
            self._cpu_secs[number] = stat.cpu_secs
            used = stat.cpu_secs - before.get(number, stat.cpu_secs)
            if used >= _WORKING_PART * elapsed:
                self._events.put(Working(run=self._runs[number]))

    def _read_lines(self) -> None:
        for key, _ in self._lines.select(0):
            self._drain(key.data)

    def _selector_of(self, stream: "_Stream") -> selectors.EpollSelector:
        return self._selector if stream.is_reports else self._lines

    def _hear(self) -> bool:
        """Handle one message of the fork server; return False if it is gone."""
        try:
            message = self._connection.recv(_MAX_MESSAGE)
        except OSError:
            message = b""
        if not message:
            for number in list(self._streams):
                self._finish(number)
            self._events.put(Lost(reason="the fork server of the tasks is gone"))
            return False
        notice = json.loads(message)
        if "started" in notice:
            self._pids[notice["started"]] = notice["pid"]
            return True
        number = notice["ended"]
        self._finish(number)
        status, cause = notice["status"], notice.get("cause")
        self._events.put(Ended(run=self._runs[number], status=status, cause=cause))
        return True

    def _finish(self, number: int) -> None:
        """Forward what an ended run has last written, and close its pipes."""
        self._pids.pop(number, None)
        for stream in self._streams.pop(number):
            self._drain(stream, _LAST_CHUNKS)
            for event in stream.feed(b""):
                self._events.put(event)
            self._close(stream)

    def _drain(self, stream: "_Stream", chunks: int = 1) -> None:
        for _ in range(chunks):
            if stream.fd is None:
                return
            try:
                data = os.read(stream.fd, _CHUNK)
            except BlockingIOError:
                return
            for event in stream.feed(data):
                self._events.put(event)
            if not data:
                self._close(stream)

    def _close(self, stream: "_Stream") -> None:
        if stream.fd is not None:
            self._selector_of(stream).unregister(stream.fd)
            os.close(stream.fd)
            stream.fd = None


class _Stream:
    """One of the three pipes of a run, split into lines, each of which is an event.

    Attributes:
        is_reports: Whether the lines are reports, and not output.
        fd: The read end of the pipe; None once it is closed.
        has_news: Whether a line has arrived since this was last set to False.
    """

    def __init__(self, run: Run, fd: int, event: Callable[[Run, bytes], Event]) -> None:
        self._run, self._event = run, event
        self.is_reports = event is _report
        self._rest = b""
        self.fd: int | None = fd
        self.has_news = False

    def feed(self, data: bytes) -> list[Event]:
        """Return an event for each line that is now complete.

        Without any data, the rest counts as a complete line.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._rest and (not data or len(self._rest) > _MAX_LINE):
            lines.append(self._rest)
            self._rest = b""
        self.has_news = self.has_news or bool(lines)
        return [self._event(self._run, line) for line in lines]


def _output(run: Run, line: bytes) -> Event:
    return Output(run=run, line=_text(line), is_error=False)


def _error(run: Run, line: bytes) -> Event:
    return Output(run=run, line=_text(line), is_error=True)


def _report(run: Run, line: bytes) -> Event:
    return Reported(run=run, report=report_of(line))


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
