"""A process between the standard streams of a program and their destinations.

TensorFlow's C++ code bypasses Python's streams and writes to file descriptor 2. `start`
replaces that descriptor with a pipe, and starts a process that reads the pipe. The
process forwards the lines worth showing, or every line as a JSON object. It outlives
the program, so the last output of a program that crashes arrives too.

To start at once, the process runs only this file and the standard library. So nothing
here may import the package.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

_LETTERS = {"I": "info", "W": "warning", "E": "error", "F": "error"}
# The formats of Python's logging, of glog and absl, and of TensorFlow's older C++ code.
_LEVEL = re.compile(
    r"(?:(?P<name>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL):[\w.]*:"
    r"|(?P<letter>[IWEF])\d{4} \S+ +\d+ \S+:\d+\] "
    r"|\d{4}-\d\d-\d\d \S+: (?P<old>[IWEF]) )"
)
# The prefix of glog: severity, time, thread and file.
_INFO = r"(?:I\d{4} \S+ +\d+ |\d{4}-\d\d-\d\d \S+: I )(?:\S+/)?"
_ANY = r"(?:[IWE]\d{4} \S+ +\d+ |\d{4}-\d\d-\d\d \S+: [IWE] )(?:\S+/)?"
_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written "
    r"to STDERR$"
    rf"|{_INFO}port\.cc:\d+\] oneDNN custom operations are on\. "
    rf"|{_INFO}cpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized to use "
    r"|To enable the following instructions: [A-Z0-9_ ]+, in other operations, rebuild "
    r"TensorFlow with the appropriate compiler flags\.$"
    # A session or a peer has ended, which is normal when a training ends. After a
    # failure others follow from it; the failure itself has a line of its own.
    rf"|{_ANY}local_rendezvous\.cc:\d+\] Local rendezvous is aborting with status: "
    r"(?:ABORTED: (?:Cleanup|Step \d+ cancelled|Stopping remaining executors)"
    r"|OUT_OF_RANGE: End of sequence"
    r"|CANCELLED: (?:Enqueue operation was|RecvFromRemoteAsync is) cancelled)"
    rf"|{_INFO}local_rendezvous\.cc:\d+\] Local rendezvous (?:recv|send) item cancelled"
    rf"|{_ANY}grpc_worker_service\.cc:\d+\] RecvTensor cancelled for \d+$"
    rf"|{_INFO}worker\.cc:\d+\] Cancellation requested for RunGraph\.$"
    # A cluster starts.
    rf"|{_INFO}grpc_server_lib\.cc:\d+\] Started server with target: "
    rf"|{_INFO}master\.cc:\d+\] Scanning workers for devices: "
    rf"|{_INFO}coordination_service\.cc:\d+\] Initializing CoordinationService$"
    rf"|{_INFO}session_mgr\.cc:\d+\] When creating WorkerSession for master task .* "
    r"found old WorkerSessions "
    rf"|{_INFO}mlir_graph_optimization_pass\.cc:\d+\] MLIR V1 optimization pass is not "
    r"enabled$"
)
# The node at which an op has failed, below the line that says why.
_NODE = re.compile(r"\s+\[\[\{\{node .*\}\}\]\]$")
_WITHOUT_GPU = re.compile(
    rf"{_INFO}cudart_stub\.cc:\d+\] Could not find cuda drivers on your machine, GPU "
    r"will not be used\.$"
    rf"|{_ANY}cuda_\w+\.cc:\d+\] Unable to register cu\w+ factory: Attempting to "
    r"register factory for plugin cu\w+ when one has already been registered$"
    rf"|{_ANY}py_utils\.cc:\d+\] TF-TRT Warning: Could not find TensorRT$"
    rf"|{_ANY}cuda_\w+\.cc:\d+\] failed call to cuInit: "
)
# Canned DNNs summarize each layer with TensorFlow's `zero_fraction`. Its `cond` causes
# this message: TensorFlow skips one graph optimization, and the results are right.
_TYPE_INFERENCE = re.compile(
    rf"{_ANY}type_inference\.cc:\d+\] Type inference failed\. This indicates an "
)
_ITS_REST = re.compile(
    r"\s*(?:goo\.gle/debug\w+\s*|type_id: \w+|args \{|\}"
    r"|is neither a subtype nor a supertype of the combined inputs preceding it:"
    r"|for .* type infer\w* function \d+"
    r"|)$"
)
_ITS_END = re.compile(r"\s*while inferring type of node '")
# TensorFlow's message has 25 lines.
_MOST_LINES = 200

# A line that asks the process how many lines it has left out.
_MARK = b"\0estimator-runtime: synchronize\n"
# `os.closerange(3, 256)` is common. `select` needs numbers below 1024.
_HIGH = 512
_START_SECS = 10.0
_SYNC_SECS = 1.0
# How long the start of a line waits for the rest, in text mode.
_PARTIAL_SECS = 0.05
_RETRY_SECS = 0.05
_MOST_PENDING = 1 << 20


def level_of(line: str) -> str | None:
    """Return the level of a log line, or None if it does not begin with one."""
    found = _LEVEL.match(line)
    if found is None:
        return None
    name = (found["name"] or "").lower()
    name = {"critical": "error", "fatal": "error"}.get(name, name)
    return name or _LETTERS[found["letter"] or found["old"]]


def as_json(task: str, line: str, now: float, level: str = "info") -> str:
    """Return a line of a task as a JSON object without a line break.

    Args:
        task: The name of the task.
        line: The line.
        now: Seconds since 1970.
        level: The level, unless the line begins with one.
    """
    level = level_of(line) or level
    return json.dumps({"time": now, "task": task, "level": level, "message": line})


class NoiseFilter:
    """Recognizes useless lines of TensorFlow's C++ code in one stream.

    Args:
        expects_gpu: Whether messages about a missing GPU are worth showing.
    """

    def __init__(self, expects_gpu: bool) -> None:
        self._expects_gpu = expects_gpu
        self._lines_left = 0  # of a message of several lines
        self._was_noise = False

    def hides(self, line: str) -> bool:
        """Return whether a line is noise; call this for every line, in order."""
        is_its_node = self._was_noise and _NODE.match(line) is not None
        self._was_noise = is_its_node or self._is_noise(line)
        return self._was_noise

    def _is_noise(self, line: str) -> bool:
        if self._lines_left:
            is_end = _ITS_END.match(line) is not None
            if is_end or _ITS_REST.match(line):
                self._lines_left = 0 if is_end else self._lines_left - 1
                return True
            self._lines_left = 0
        if _TYPE_INFERENCE.match(line):
            self._lines_left = _MOST_LINES
            return True
        is_about_gpu = _WITHOUT_GPU.match(line) is not None and not self._expects_gpu
        return is_about_gpu or _NOISE.match(line) is not None


class _Relay:
    """The program's end of the pipes to the process, and of the one for its answers."""

    def __init__(self, pipes: Sequence[int], answers: int) -> None:
        self._pipes, self._answers = pipes, answers
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def sync(self, timeout_secs: float) -> int:
        # A forked child shares the pipe for the answers.
        if os.getpid() != self._owner or not self._lock.acquire(timeout=timeout_secs):
            return 0
        try:
            return self._ask(time.monotonic() + timeout_secs)
        finally:
            self._lock.release()

    def _ask(self, deadline: float) -> int:
        count, text = 0, b""
        for pipe in self._pipes:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([], [pipe], [], left)[1]:
                return 0
            try:
                os.write(pipe, _MARK)
            except BrokenPipeError:  # the reader of this stream is gone
                continue
            text = b""
            while not text.endswith(b"\n"):
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._answers], [], [], left)[0]:
                    return 0
                part = os.read(self._answers, 64)
                if not part:
                    return 0
                text += part
            count += int(text.split()[-1])
        return count


_relay: _Relay | None = None
_makes_json = False


def makes_json() -> bool:
    """Return whether each line of this process becomes a JSON object."""
    return _makes_json


def start(*, task: str | None, hides_noise: bool, expects_gpu: bool) -> bool:
    """Start the process between the streams of this one and their destinations.

    In text mode, only file descriptor 2 leads to the process. `sys.stderr` still writes
    to the same file, terminal or pipe as before, through another descriptor. If the
    process cannot be started, or standard error is closed, nothing changes.

    Args:
        task: The task name in the JSON objects into which every line of standard output
            and standard error is turned; None for text mode.
        hides_noise: Whether to leave out useless lines of TensorFlow's C++ code.
        expects_gpu: Whether messages about a missing GPU are worth showing.

    Returns:
        Whether the process is running.
    """
    import subprocess  # here, so that what imports this module needs none

    global _relay, _makes_json
    if _relay is not None:
        return True
    numbers = (2,) if task is None else (1, 2)
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as ours:
        try:
            kept = [_duplicate(number, ours) for number in numbers]
            pipes = [_pipe(stack, ours) for _ in numbers]
            answers, answers_end = _pipe(ours, stack)
            ends = [source for source, _ in pipes]
            config = {
                "streams": list(zip(ends, kept, strict=True)),
                "answers": answers_end,
                "task": task,
                "hides_noise": hides_noise,
                "expects_gpu": expects_gpu,
            }
            subprocess.run(
                [sys.executable, "-I", "-S", __file__, json.dumps(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[*ends, *kept, answers_end],
                timeout=_START_SECS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        ours.pop_all()  # they stay open
    inputs = [pipe for _, pipe in pipes]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    for number, pipe in zip(numbers, inputs, strict=True):
        os.dup2(pipe, number)
    if task is None:
        _keep_stderr(kept[0])
    else:
        for number in kept:
            os.close(number)
        # Flush each line, because half an object is of no use to a reader.
        with contextlib.suppress(AttributeError, ValueError):
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _relay, _makes_json = _Relay(inputs, answers), task is not None
    return True


def sync(timeout_secs: float = _SYNC_SECS) -> int:
    """Wait until everything written so far has been forwarded.

    Args:
        timeout_secs: The maximum time to wait.

    Returns:
        The number of lines left out so far; 0 if the process does not answer.
    """
    if _relay is None:
        return 0
    with contextlib.suppress(OSError, ValueError):
        return _relay.sync(timeout_secs)
    return 0


def _duplicate(number: int, stack: contextlib.ExitStack) -> int:
    """Return a copy of a file descriptor that `stack` closes.

    It is never one of the first three, which may be closed and must stay closed.
    """
    copy = duplicate_high(number)
    stack.callback(os.close, copy)
    return copy


def duplicate_high(number: int) -> int:
    """Return a copy of a file descriptor that children do not inherit.

    Its number is above those that a program closes without knowing them, as daemons do
    when they start, and then takes for files of its own.
    """
    with contextlib.suppress(OSError):  # of a limit that is lower: ulimit -n
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)


def _pipe(
    of_source: contextlib.ExitStack, of_end: contextlib.ExitStack
) -> tuple[int, int]:
    """Return both ends of a pipe, each closed by its own stack; see `_duplicate`."""
    source, end = os.pipe()
    try:
        return _duplicate(source, of_source), _duplicate(end, of_end)
    finally:
        os.close(source)
        os.close(end)


def finish() -> None:
    """Flush standard output and error, and wait until everything is forwarded."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    sync()


def _keep_stderr(number: int) -> None:
    """Make `sys.stderr` write to a file descriptor, and keep its other settings."""
    old: Any = sys.stderr
    if not isinstance(old, io.TextIOWrapper):  # a notebook's
        return
    raw = _KeptStderr(number, "w")
    raw.name = "<stderr>"  # as Python names it
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=True,
        write_through=old.write_through,
    )
    sys.__stderr__ = sys.stderr  # type: ignore[misc]


class _KeptStderr(io.FileIO):
    """The destination of `sys.stderr`, until the program redirects descriptor 2.

    Created when descriptor 2 leads to the process.
    """

    def __init__(self, number: int, mode: str) -> None:
        super().__init__(number, mode)
        self._relayed = os.fstat(2)

    def write(self, data: Any) -> int:
        """Write to the descriptor that `sys.stderr` would use without the process."""
        is_ours = False
        with contextlib.suppress(OSError):  # the program has closed one of them
            os.fstat(self.fileno())
            is_ours = os.path.samestat(os.fstat(2), self._relayed)
        return super().write(data) if is_ours else os.write(2, data)


class _RelayedStream:
    """One stream of the program, in the process that reads it.

    Args:
        source: The file descriptor of the pipe.
        sink: The file descriptor of the destination.
        shape: Returns the text to write for a line, both without a line break. With
            None, lines are written unchanged, without waiting for their end.
        noise: Finds the lines to leave out; None to write all.
    """

    def __init__(
        self,
        source: int,
        sink: int,
        shape: Callable[[str], str] | None,
        noise: NoiseFilter | None,
    ) -> None:
        self.source, self._sink = source, sink
        self._shape, self._noise = shape, noise
        self._rest = b""
        self._is_within = False  # whether the start of a line is written
        self._hidden = 0

    @property
    def waits(self) -> bool:
        return bool(self._rest) and self._shape is None

    def take(self, data: bytes, answer: Callable[[int], object]) -> None:
        # What is left from before has no line break, so search the new part only.
        if b"\n" not in data:
            self._rest += data
            if len(self._rest) >= _MOST_PENDING:  # such as a bar that redraws itself
                self.put_rest()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            line += b"\n"
            if line.endswith(_MARK):
                if line != _MARK:
                    self._put(line.removesuffix(_MARK))
                answer(self._hidden)
            else:
                self._put(line)

    def put_rest(self) -> None:
        """Write the unfinished line that is pending."""
        rest, self._rest = self._rest, b""
        if rest:
            self._put(rest)

    def _put(self, line: bytes) -> None:
        text = line.decode(errors="replace").removesuffix("\n")
        was_within = self._is_within
        self._is_within = self._shape is None and not line.endswith(b"\n")
        if not was_within and self._noise is not None and self._noise.hides(text):
            self._hidden += 1
            return
        if self._shape is not None:
            line = f"{self._shape(text)}\n".encode()
        while line:
            try:
                line = line[os.write(self._sink, line) :]
            except BlockingIOError:  # another process has made it non-blocking
                time.sleep(_RETRY_SECS)
            except BrokenPipeError:
                raise
            except OSError:  # such as a full disk, which may have room again
                return


def _serve(config: dict[str, Any]) -> None:
    task = config["task"]

    def shape(line: str) -> str:
        return as_json(task, line, time.time())

    def answer(hidden: int) -> None:
        # The program may have ended or closed its end of the pipe.
        with contextlib.suppress(OSError):
            os.write(config["answers"], f"{hidden}\n".encode())

    streams = {}
    for source, sink in config["streams"]:
        noise = NoiseFilter(config["expects_gpu"]) if config["hides_noise"] else None
        streams[source] = _RelayedStream(source, sink, shape if task else None, noise)

    def handle(source: int, is_ready: bool) -> None:
        stream = streams[source]
        try:
            if not is_ready:
                stream.put_rest()
            elif data := os.read(source, 1 << 16):
                stream.take(data, answer)
            else:
                streams.pop(source).put_rest()
        except BrokenPipeError:
            # The reader is gone. Whoever writes next learns that, as without this
            # process; the other stream goes on.
            streams.pop(source, None)
            os.close(source)

    while streams:
        partial = [source for source, each in streams.items() if each.waits]
        ready, _, _ = select.select(
            list(streams), [], [], _PARTIAL_SECS if partial else None
        )
        for source in ready or partial:
            handle(source, is_ready=bool(ready))


def _main(config: dict[str, Any]) -> None:
    # Detach from the program, so that it does not wait for this process as its child.
    if os.fork():
        os._exit(0)
    os.setsid()  # Ctrl-C must not end it before the program's last lines
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    _serve(config)
    os._exit(0)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
