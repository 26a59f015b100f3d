"""What a task tells the launcher about itself, while it runs.

Under a launcher ESTIMATOR_RUNTIME_REPORT_FD is a pipe to it. A report is a JSON object
on a line of its own; one is sent every second, with the progress made, so that a task
that is stopped or cut off is noticed. While a library is loaded, which takes long from
a slow disk, no thread of python's runs: the first report after TensorFlow's import says
that it is over ("imported"). The last one of all says that only the process's end is
left ("ending"), during which no thread runs either. A training that takes no step for
long is reported with where its threads are ("stalled"). Without a launcher nothing is
sent.

Standard library only: it starts before TensorFlow is imported, and runs on a thread of
its own, so that a launcher that does not read can never block the training.
"""

import atexit
import collections
import contextlib
import json
import os
import sys
import threading

from estimator_runtime import waits
from estimator_runtime.stalls import StepWatch

FD_VARIABLE = "ESTIMATOR_RUNTIME_REPORT_FD"
# The same for all tasks of a job, in the environment of every process of it.
JOB_VARIABLE = "ESTIMATOR_RUNTIME_JOB"
# Where a scheduler starts all tasks of a job anew: how often it has.
ATTEMPT_VARIABLE = "ESTIMATOR_RUNTIME_JOB_ATTEMPT"
_PACKAGES = ("estimator_runtime", "tensorflow")
_BEAT_SECS = 1.0
# How long the program waits for a launcher that does not read.
_FLUSH_SECS = 5.0


class Reporter:
    """Sends reports on a thread of its own, in the order given.

    Args:
        fd: The pipe to the launcher.
        steps: The `StepWatch` of the training here.
    """

    def __init__(self, fd, steps):
        self._pipe, self.steps = fd, steps
        self._pid = os.getpid()
        # Reports, and events to set when all that was before them is sent.
        self._waiting: collections.deque[dict | threading.Event] = collections.deque()
        self._progress: dict = {}
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(
            target=self._serve, name="estimator_runtime reports", daemon=True
        )
        self._thread.start()

    def send(self, report):
        """Send a JSON object soon; never blocks."""
        if os.getpid() == self._pid:  # a forked child has no thread that sends
            self._waiting.append(report)
            self._wake.set()

    def progress(self, **values):
        """Send these with the next sign of life; later ones replace them."""
        self._progress = {**self._progress, **values}
        if "step" in values:
            self.steps.move()

    def flush(self) -> None:
        """Wait until what was sent has gone, for a few seconds at most."""
        if os.getpid() == self._pid and self._thread.is_alive():
            is_sent = threading.Event()
            self._waiting.append(is_sent)
            self._wake.set()
            is_sent.wait(_FLUSH_SECS)

    def close(self):
        """Send what is waiting, as far as the launcher reads it in a few seconds.

        The process is expected to end now.
        """
        if os.getpid() == self._pid:
            self._closing = True
            self._wake.set()
            self._thread.join(_FLUSH_SECS)

    def _serve(self):
        has_imported = False
        with contextlib.suppress(OSError):  # the launcher is gone, and so will we be
            while True:
                # Before what waits is sent: what comes now comes with the next round.
                closing = self._closing
                self._wake.clear()
                progress, self._progress = self._progress, {}
                if not has_imported and _has_tensorflow():
                    has_imported, progress = True, {**progress, "imported": True}
                self._write(progress)
                if (stall := self.steps.look()) is not None:
                    self._write({"stalled": stall})
                while self._waiting:
                    report = self._waiting.popleft()
                    if isinstance(report, threading.Event):
                        report.set()
                    else:
                        self._write(report)
                if closing:
                    self._write({"ending": True})
                    return
                self._wake.wait(_BEAT_SECS)

    def _write(self, report):
        data = json.dumps(report, default=str).encode() + b"\n"
        while data:
            data = data[os.write(self._pipe, data) :]


def _has_tensorflow():
    module = sys.modules.get("tensorflow")
    # It is there from the start of its import on; importlib itself looks at this, too.
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


_reporter: Reporter | None = None


def start(environ):
    """Report from now on, if the environment names a launcher's pipe.

    The variable is removed: the pipe is not for this process's children.
    """
    global _reporter
    text = environ.pop(FD_VARIABLE, None)
    if text is None or _reporter is not None:
        return
    os.set_inheritable(int(text), False)
    _reporter = Reporter(int(text), StepWatch(waits.stall_secs(environ)))
    atexit.register(_reporter.close)


def absolute(folder):
    """Give a path as the launcher, which may be in another folder, would write it."""
    return folder if "://" in folder else os.path.abspath(folder)


def is_on():
    """Tell whether there is a launcher that listens."""
    return _reporter is not None


def send(**report):
    """Send a report, if there is a launcher."""
    if _reporter is not None:
        _reporter.send(report)


def send_error(error: type[BaseException]) -> None:
    """Send the class of the error that ends this task, if there is a launcher.

    That is its qualified name, then those of its bases that are this package's or
    TensorFlow's: a class of the program's may have any name.
    """
    names = [
        f"{each.__module__}.{each.__qualname__}"
        for each in error.__mro__
        if each is error or each.__module__.partition(".")[0] in _PACKAGES
    ]
    send(error=names)


def progress(**values):
    """Send these with the next sign of life, if there is a launcher."""
    if _reporter is not None:
        _reporter.progress(**values)


def flush() -> None:
    """Wait until what was sent has gone to the launcher, for a few seconds at most."""
    if _reporter is not None:
        _reporter.flush()


def expect_steps():
    """Report to the launcher, from now on, when the calling thread takes no step."""
    if _reporter is not None:
        _reporter.steps.expect()


def expect_no_steps():
    """Take note that the training has ended."""
    if _reporter is not None:
        _reporter.steps.release()


def close():
    """Send all that waits, before a process ends that does not come to its exit."""
    if _reporter is not None:
        _reporter.close()
