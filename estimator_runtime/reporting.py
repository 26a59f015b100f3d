"""Reports of a running task to the launcher, through a pipe.

Under a launcher, ESTIMATOR_RUNTIME_REPORTS is "PID:PATH": the process that reports, and
the path of the pipe in /proc. So a program that replaces itself by `os.execv` reports
on, and its children do not. Without a launcher nothing is sent. A report is a JSON
object on a line of its own. One is sent every second, with the progress made, so that
the launcher notices a task that is stopped or cut off from the network. Some reports
have a meaning of their own:

* "doing": what the task does until its first step, such as "building the model"; the
  launcher shows it.
* "pid": the first report; it has the pid of the process.
* "imported": TensorFlow has been imported. No Python thread runs while a library is
  loaded, which takes long from a slow disk.
* "stalled": the training has taken no step for long; the report has the stacks of its
  threads.
* "explanation": what the last lines of the job say of the error that ends the task.
* "ending": the last report. No Python thread runs while the process exits.

Standard library only, because it starts before TensorFlow is imported. Reports are sent
on a thread of their own, so that a launcher that does not read never blocks the
training. No file is read, not even for a line of source code: the training may be
waiting for that very disk.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import errno
import fcntl
import gc
import json
import math
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from estimator_runtime.config import waits
from estimator_runtime.config.paths import is_local

VARIABLE = "ESTIMATOR_RUNTIME_REPORTS"
# Identifies the job: the same in the environment of every process of all its tasks.
JOB_VARIABLE = "ESTIMATOR_RUNTIME_JOB"
# Counts how often a scheduler has restarted all tasks of the job together.
ATTEMPT_VARIABLE = "ESTIMATOR_RUNTIME_JOB_ATTEMPT"
_PACKAGES = ("estimator_runtime", "tensorflow")
_BEAT_SECS = 1.0
# How long the program waits for a launcher that does not read.
_FLUSH_SECS = 5.0
_HIGH = 512  # `os.closerange(3, 256)` is common
FRAMEWORKS = frozenset(
    ("estimator_runtime", "keras", "tensorflow", "tensorflow_estimator", "tf_keras")
)
_OURS = os.path.join(os.path.dirname(__file__), "")
_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")
# Limits of an explanation, and of the report of a stall.
_MOST_CHARS = 10_000
_MAX_FRAMES, _MAX_THREADS = 5, 4


class Reporter:
    """Sends reports on a thread of its own, in the order in which they were given.

    Args:
        path: The path of the pipe to the launcher.
        steps: The `StepWatch` of the training in this process.
    """

    def __init__(self, path: str, steps: StepWatch) -> None:
        self._path, self.steps = path, steps
        self._fd = _open(path)
        self._stat = os.fstat(self._fd)
        self._pid = os.getpid()
        # Reports, and events to set once everything before them has been sent.
        self._waiting: collections.deque[dict[str, Any] | threading.Event] = (
            collections.deque()
        )
        self._progress: dict[str, Any] = {}
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(
            target=self._serve, name="estimator_runtime reports", daemon=True
        )
        self._thread.start()

    def send(self, report: dict[str, Any]) -> None:
        """Send a JSON object soon; never blocks."""
        if os.getpid() == self._pid:  # a forked child has no thread that sends
            self._waiting.append(report)
            self._wake.set()

    def progress(self, **values: Any) -> None:
        """Send values with the next heartbeat; later ones of the same name win."""
        self._progress = {**self._progress, **values}
        if "step" in values:
            self.steps.move()

    def flush(self) -> None:
        """Wait until all reports given so far are sent, for a few seconds at most."""
        if os.getpid() == self._pid and self._thread.is_alive():
            is_sent = threading.Event()
            self._waiting.append(is_sent)
            self._wake.set()
            is_sent.wait(_FLUSH_SECS)

    def close(self) -> None:
        """Send what is waiting, as far as the launcher reads it within a few seconds.

        The process is expected to end now.
        """
        if os.getpid() == self._pid:
            self._closing = True
            self._wake.set()
            self._thread.join(_FLUSH_SECS)

    def _serve(self) -> None:
        has_imported = False
        # The launcher is gone; this task ends soon.
        with contextlib.suppress(BrokenPipeError):
            while True:
                # Read and cleared before the queue is sent, so that what arrives
                # meanwhile starts another round.
                closing = self._closing
                self._wake.clear()
                progress, self._progress = self._progress, {}
                if not has_imported and _has_tensorflow():
                    has_imported, progress = True, {**progress, "imported": True}
                self._write(progress)
                if (stall := self.steps.check()) is not None:
                    self._write({"stalled": stall})
                while self._waiting:
                    report = self._waiting.popleft()
                    if isinstance(report, threading.Event):
                        report.set()
                    else:
                        self._write(report)
                if closing:
                    self._write({"ending": True})
                    os.close(self._fd)
                    return
                self._wake.wait(_BEAT_SECS)

    def _write(self, report: Mapping[str, Any]) -> None:
        data = json.dumps(report, default=str).encode() + b"\n"
        while data:
            try:
                data = data[os.write(self._pipe(), data) :]
            except OSError as error:
                if error.errno != errno.EBADF:  # the program has just closed it
                    raise

    def _pipe(self) -> int:
        """Return the descriptor of the pipe, which is opened again if need be.

        The program may have closed all descriptors, as daemons do, and have opened a
        file of its own under this number.
        """
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._fd), self._stat):
                return self._fd
        self._fd = _open(self._path)
        return self._fd


def _open(path: str) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        # Above the numbers that a program closes without knowing them, as daemons do
        # when they start, and then takes for files of its own.
        with contextlib.suppress(OSError):  # of a limit that is lower: ulimit -n
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def _has_tensorflow() -> bool:
    module = sys.modules.get("tensorflow")
    # The module is listed as soon as its import starts; `_initializing` is what
    # importlib itself reads to see whether the import is still under way.
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def start(environ: Mapping[str, str]) -> None:
    """Start to send reports, if the environment names a pipe for this process.

    Args:
        environ: The environment, such as `os.environ`.
    """
    global _reporter
    pid, _, path = environ.get(VARIABLE, "").partition(":")
    if pid != str(os.getpid()) or _reporter is not None:
        return
    _reporter = Reporter(path, StepWatch(waits.stall_secs(environ)))
    _reporter.send({"pid": os.getpid()})
    atexit.register(_reporter.close)


def absolute(folder: str) -> str:
    """Return a path that is valid for the launcher too, which may run elsewhere.

    A URL, such as "gs://bucket/model", is returned unchanged.
    """
    return folder if not is_local(folder) else os.path.abspath(folder)


def is_on() -> bool:
    """Return whether a launcher receives reports."""
    return _reporter is not None


def send(**report: Any) -> None:
    """Send a report, if there is a launcher."""
    if _reporter is not None:
        _reporter.send(report)


def send_error(error: type[BaseException]) -> None:
    """Send the class of the error that ends this task, if there is a launcher.

    The report has the qualified name of the class, then those of its base classes that
    belong to this package or to TensorFlow: a class of the program may have any name.
    """
    names = [
        f"{each.__module__}.{each.__qualname__}"
        for each in error.__mro__
        if each is error or each.__module__.partition(".")[0] in _PACKAGES
    ]
    send(error=names)


def send_explanation(text: str) -> None:
    """Send what the last lines of the job say of the error that ends this task."""
    send(explanation=text[:_MOST_CHARS])


def progress(**values: Any) -> None:
    """Send values with the next heartbeat, if there is a launcher."""
    if _reporter is not None:
        _reporter.progress(**values)


def flush() -> None:
    """Wait until all reports given so far are sent, for a few seconds at most."""
    if _reporter is not None:
        _reporter.flush()


def expect_steps() -> None:
    """Start to report to the launcher when the calling thread takes no step."""
    if _reporter is not None:
        _reporter.steps.expect()


def expect_no_steps() -> None:
    """Stop to report missing steps: the training has ended."""
    if _reporter is not None:
        _reporter.steps.stop()


def close() -> None:
    """Send everything that waits, before a process ends without its exit handlers."""
    if _reporter is not None:
        _reporter.close()


class StepWatch:
    """Detects a training that should take steps and takes none for too long.

    Any thread may call the methods.

    Args:
        limit_secs: A stall is reported after this time, and again whenever it has
            lasted twice as long; 0 for never.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, limit_secs: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_secs, self._clock = limit_secs or math.inf, clock
        self._thread: int | None = None  # the thread that trains, if any
        self._has_moved = False
        self._moved_at, self._due_secs = 0.0, self._limit_secs

    def expect(self) -> None:
        """Expect steps of the calling thread from now on."""
        self._has_moved, self._thread = True, threading.get_ident()

    def stop(self) -> None:
        """Expect no more steps: the training has ended."""
        self._thread = None

    def move(self) -> None:
        """Record a step; cheap, because it is called at every step."""
        self._has_moved = True

    def check(self) -> dict[str, Any] | None:
        """Return a report of the stall, if one is due now.

        Returns:
            None, or a dict of "secs", the time without a step, and "stacks". That has
            one list for each thread that runs code of the program, the training thread
            first. A list has places such as "/home/me/train.py:12, in input_fn", the
            outermost first.
        """
        now, thread = self._clock(), self._thread
        if self._has_moved or thread is None:
            self._has_moved = False
            self._moved_at, self._due_secs = now, self._limit_secs
            return None
        if now - self._moved_at < self._due_secs:
            return None
        self._due_secs = 2 * (now - self._moved_at)
        return {"secs": now - self._moved_at, "stacks": _stacks(thread)}


def is_of_program(frame: FrameType) -> bool:
    """Return whether a frame is not of TensorFlow, this package or Python."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    path = frame.f_code.co_filename
    is_installed = "site-packages" in path or "dist-packages" in path
    is_library = path.startswith((_LIBRARY, "<frozen ")) and not is_installed
    # A module of this package may be the `__main__` of its process.
    is_ours = package in FRAMEWORKS or path.startswith(_OURS)
    return not (is_ours or is_library)


def is_file_of_program(path: str) -> bool:
    """Return whether a file is not of this package, of Python, or installed."""
    is_installed = "site-packages" in path or "dist-packages" in path
    return not (is_installed or path.startswith((_OURS, _LIBRARY, "<")))


def _stacks(first: int) -> list[list[str]]:
    """Return the stack of thread `first`, then of others in the program's code."""
    # A collection of garbage inside the call may let another thread in, and both wait
    # for ever (python/cpython#106883; seen on 3.11.7).
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        frames = sys._current_frames()
    finally:
        if is_collecting:
            gc.enable()
    own = frames.pop(first, None)
    found = [] if own is None else [_places(own)]
    for frame in frames.values():
        if any(map(is_of_program, _outwards(frame))):
            found.append(_places(frame))
    return found[:_MAX_THREADS]


def _places(innermost: FrameType) -> list[str]:
    """Return the last places in the program's code, then the innermost place of all."""
    frames = list(_outwards(innermost))
    shown = [frame for frame in frames if frame is innermost or is_of_program(frame)]
    return [
        f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
        for frame in reversed(shown[:_MAX_FRAMES])
    ]


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


_reporter: Reporter | None = None
