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
* "stalled": the training has taken no step for so many seconds. Then standard error
  shows where its threads are.
* "explanation": what the last lines of the job say of the error that ends the task.
* "ending": the last report. No Python thread runs while the process exits.

Standard library only, because it starts before TensorFlow is imported. Reports are sent
on a thread of their own, so that a launcher that does not read never blocks the
training. No file is read: the training may be waiting for that very disk.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import faulthandler
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from estimator_runtime import threads
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
_STDERR = 2
# The limit of an explanation.
_MOST_CHARS = 10_000


class Reporter:
    """Sends reports on a thread of its own, in the order in which they were given.

    Args:
        path: The path of the pipe to the launcher.
        steps: The `StepWatch` of the training in this process.
    """

    def __init__(self, path: str, steps: StepWatch) -> None:
        self._path, self.steps = path, steps
        self._pid = os.getpid()
        # Reports, and events to set once everything before them has been sent.
        self._waiting: collections.deque[dict[str, Any] | threading.Event] = (
            collections.deque()
        )
        self._progress: dict[str, Any] = {}
        self._wake = threading.Event()
        self._thread = threads.start("reports", self._serve)

    def send(self, report: dict[str, Any]) -> None:
        """Send a JSON object soon; never blocks."""
        if os.getpid() == self._pid:  # a forked child has no thread that sends
            self._waiting.append(report)
            self._wake.set()

    def progress(self, **values: Any) -> None:
        """Send values with the next heartbeat; later ones of the same name win."""
        self._progress.update(values)
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
        self.send({"ending": True})
        if os.getpid() == self._pid:
            self._thread.join(_FLUSH_SECS)

    def _serve(self) -> None:
        has_imported = False
        # The launcher is gone; this task ends soon.
        with contextlib.suppress(BrokenPipeError, FileNotFoundError):
            while True:
                # Taken before the progress, so that none is older than a report. What
                # arrives meanwhile starts another round.
                self._wake.clear()
                waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
                progress: dict[str, Any] = {}
                # One by one, so that none is lost that another thread sets meanwhile.
                while self._progress:
                    key, value = self._progress.popitem()
                    progress[key] = value
                if not has_imported and _has_tensorflow():
                    has_imported, progress = True, {**progress, "imported": True}
                self._write(progress)
                if (secs := self.steps.check()) is not None:
                    self._write({"stalled": secs})
                    faulthandler.dump_traceback(_STDERR)
                for report in waiting:
                    if isinstance(report, threading.Event):
                        report.set()
                        continue
                    self._write(report)
                    if "ending" in report:
                        return
                self._wake.wait(_BEAT_SECS)

    def _write(self, report: Mapping[str, Any]) -> None:
        data = json.dumps(report, default=str).encode() + b"\n"
        # Opened for each report: the program may close any descriptor, as daemons do,
        # and open a file of its own under that number.
        while data:
            try:
                with open(self._path, "wb", buffering=0) as pipe:
                    data = data[pipe.write(data) :]
            except (BrokenPipeError, FileNotFoundError):
                raise
            except OSError:
                # No descriptor is free, or the program has just closed this one.
                time.sleep(_BEAT_SECS)


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
    """Start to report to the launcher when no step is taken."""
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
        self._is_expecting = self._has_moved = False
        self._moved_at, self._due_secs = 0.0, self._limit_secs

    def expect(self) -> None:
        """Expect steps from now on."""
        self._has_moved = self._is_expecting = True

    def stop(self) -> None:
        """Expect no more steps: the training has ended."""
        self._is_expecting = False

    def move(self) -> None:
        """Record a step; cheap, because it is called at every step."""
        self._has_moved = True

    def check(self) -> float | None:
        """Return for how many seconds there was no step, if a report is due now."""
        now = self._clock()
        if self._has_moved or not self._is_expecting:
            self._has_moved = False
            self._moved_at, self._due_secs = now, self._limit_secs
            return None
        secs = now - self._moved_at
        if secs < self._due_secs:
            return None
        self._due_secs = 2 * secs
        return secs


_reporter: Reporter | None = None
