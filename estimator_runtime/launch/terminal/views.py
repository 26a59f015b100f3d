"""What is shown of a job: lines of its tasks, and its progress, as rows or as lines."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from estimator_runtime.config.options import OPTIONS
from estimator_runtime.output import log_filter, native_log
from estimator_runtime.output.terminal import time_left

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job
    from estimator_runtime.launch.supervisor.task_state import TaskState
    from estimator_runtime.launch.task import Task
    from estimator_runtime.launch.terminal.console import Console
    from estimator_runtime.launch.terminal.job_status import (
        JobStatus,
        Status,
        TaskStatus,
    )

_LINE_SECS = 10.0
# The prefix that glog writes: severity, time, thread and file.
_INFO = r"(?:I\d{4} \S+ +\d+ |\d{4}-\d\d-\d\d \S+: I )(?:\S+/)?"
_ANY = r"(?:[IWE]\d{4} \S+ +\d+ |\d{4}-\d\d-\d\d \S+: [IWE] )(?:\S+/)?"
_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written "
    r"to STDERR$"
    rf"|{_INFO}port\.cc:\d+\] oneDNN custom operations are on\. "
    rf"|{_INFO}cpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized to use "
    r"|To enable the following instructions: [A-Z0-9_ ]+, in other operations, rebuild "
    r"TensorFlow with the appropriate compiler flags\.$"
    # A session or a peer has ended, as each does when a training ends.
    rf"|{_ANY}local_rendezvous\.cc:\d+\] Local rendezvous is aborting with status: "
    r"(?:ABORTED: Cleanup|OUT_OF_RANGE: End of sequence)"
    rf"|{_INFO}mlir_graph_optimization_pass\.cc:\d+\] MLIR V1 optimization pass is not "
    r"enabled$"
)
_WITHOUT_GPU = re.compile(
    rf"{_INFO}cudart_stub\.cc:\d+\] Could not find cuda drivers on your machine, GPU "
    r"will not be used\.$"
)


class View:
    """Shows the progress of a job.

    Args:
        mode: "bar" for a row per task and a bar for the whole job, below all other
            lines; "plain" for one line there; "none" for nothing; "auto" for "bar" if
            tqdm is installed, and "plain" otherwise.
        console: Where the progress is shown. If it is not a terminal, nothing can be
            redrawn below the lines of the tasks. "bar" and "plain" then write a line
            every ten seconds while the global step changes, so a job that ends within
            ten seconds gets none.
        status: The status of the job.
    """

    def __init__(self, mode: str, console: Console, status: Status) -> None:
        if mode == "auto":
            mode = "bar" if importlib.util.find_spec("tqdm") is not None else "plain"
        self._mode, self._console, self._status = mode, console, status
        self._said_at: float | None = None
        self._step = 0

    def show(self, now: float) -> None:
        """Show the progress, if it is time; call this often."""
        if self._mode == "none":
            return
        self._said_at = now if self._said_at is None else self._said_at
        seen = self._status.look(now)
        if seen is None:
            return
        console = self._console
        if not console.is_terminal:
            if now - self._said_at >= _LINE_SECS and seen.step != self._step:
                self._said_at, self._step = now, seen.step
                console.say(line(seen))
        elif self._mode == "bar":
            rows = [(task.name, describe(task)) for task in seen.tasks]
            bar = total(seen, console.columns, console.can_unicode)
            console.status([*rows, ("total", bar)])
        else:
            console.status([("", line(seen))])


def line(seen: JobStatus) -> str:
    """Return the progress of a job as one line.

    Rates are measured over the last seconds. The total is the rate of the global step.
    The rate of a task counts only the steps that it has trained itself.
    """
    of = "" if seen.last_step is None else f" of {seen.last_step}"
    parts = [f"step {seen.step}{of}"]
    if seen.rate is not None:
        each = ", ".join(
            f"{task.name} {task.rate:.1f}"
            for task in seen.tasks
            if task.rate is not None
        )
        parts.append(f"{seen.rate:.1f} steps/s" + (f" ({each})" if each else ""))
    if seen.loss is not None:
        parts.append(f"loss {seen.loss:.4g}")
    left = time_left(seen.step, seen.last_step, seen.rate)
    if left is not None:
        parts.append(f"{left} left")
    saved = "none" if seen.saved_step is None else seen.saved_step
    parts.append(f"checkpoint {saved}")
    for task in seen.tasks:
        if task.metrics:
            parts.append(f"evaluated: {_metrics(task.metrics)}")
    if seen.restarts:
        parts.append(f"restarts {seen.restarts}")
    return " | ".join(parts)


def describe(task: TaskStatus) -> str:
    """Return the progress of a task in a few words."""
    parts = [
        task.state,
        None if task.step is None else f"step {task.step}",
        None if task.rate is None else f"{task.rate:.1f} steps/s",
        None if task.loss is None else f"loss {task.loss:.4g}",
        f"evaluated: {_metrics(task.metrics)}" if task.metrics else None,
    ]
    return ", ".join(filter(None, parts))


def total(seen: JobStatus, columns: int, can_unicode: bool) -> str:
    """Return the bar of the whole job, or a count if the last step is unknown.

    It has at most so many columns. `can_unicode` allows characters outside ASCII.
    """
    from tqdm import tqdm

    remarks = {}
    if seen.loss is not None:
        remarks["loss"] = f"{seen.loss:.4g}"
    if seen.saved_step is not None:
        remarks["saved"] = f"step {seen.saved_step}"
    if seen.restarts:
        remarks["restarts"] = str(seen.restarts)
    step = seen.step
    if seen.last_step is not None:
        step = min(step, seen.last_step)  # workers may run a few steps more
    return tqdm.format_meter(
        step,
        seen.last_step,
        seen.elapsed_secs,
        ncols=columns,
        ascii=not can_unicode,
        unit="step",
        rate=seen.rate,
        postfix=", ".join(f"{name}={text}" for name, text in remarks.items()),
    )


def _metrics(metrics: Mapping[str, float]) -> str:
    shown = [
        f"{name} {value:.5g}"
        for name, value in metrics.items()
        if name != "global_step"
    ]
    at = f" at step {metrics['global_step']:.0f}" if "global_step" in metrics else ""
    return ", ".join(shown) + at


class Screen:
    """The terminal output of one job: lines of tasks, and the progress of the job.

    Startup noise of TensorFlow is left out, unless the presentation is verbose. At the
    end the screen reports how many lines were left out.

    Attributes:
        console: The console that everything is written to.
    """

    def __init__(self, console: Console, presentation: Presentation) -> None:
        self.console, self._presentation = console, presentation
        self._tasks: Sequence[TaskState] = []
        self._view: View | None = None
        self._noise_count = 0
        self._lock = threading.Lock()

    def open(self, tasks: Sequence[TaskState], status: Status) -> None:
        """Start to show the job of these tasks."""
        self._tasks = tasks
        self.console.introduce([str(each.task) for each in tasks])
        self._view = View(self._presentation.progress, self.console, status)

    def write(self, task: Task, line: str, is_error: bool) -> None:
        """Show a line of a task, unless it is startup noise on standard error."""
        if not (is_error and self._leaves_out(line)):
            self.console.write(str(task), line, is_error)

    def write_of_fork_server(self, line: str) -> None:
        """Show a line of the fork server, unless it is noise; thread-safe."""
        if not self._leaves_out(line):
            self.console.say(line)

    def show(self, now: float) -> None:
        """Show the progress of the job, if it is time."""
        if self._view is not None:
            self._view.show(now)

    def close(self) -> None:
        """Remove the status rows, and report how many lines were left out."""
        self.console.status([])
        warnings = sum(each.hidden_warnings for each in self._tasks)
        if warnings or self._noise_count:
            self.console.say(log_filter.summary(warnings, self._noise_count))

    def _leaves_out(self, line: str) -> bool:
        shown = self._presentation
        if shown.is_verbose or not is_startup_noise(line, shown.expects_gpu):
            return False
        with self._lock:
            self._noise_count += 1
        return True


def is_startup_noise(line: str, expects_gpu: bool) -> bool:
    """Return whether TensorFlow's C++ code logs this line at any start.

    Where a GPU is expected, the line that reports that there is none is no noise.
    """
    is_about_gpu = _WITHOUT_GPU.match(line) is not None and not expects_gpu
    return is_about_gpu or _NOISE.match(line) is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Presentation:
    """The settings of what is shown of a job.

    Attributes:
        progress: "bar", "plain", "none" or "auto".
        is_verbose: Whether every line is shown.
        expects_gpu: Whether the line in which TensorFlow reports that it finds no GPU
            is worth showing.
    """

    progress: str = "auto"
    is_verbose: bool = False
    expects_gpu: bool = False

    @classmethod
    def of(cls, job: Job, environ: Mapping[str, str]) -> Presentation:
        """Read the settings from the environment that the tasks of a job get.

        The variables of the job win over `environ`, that of this process.

        Raises:
            ConfigError: If a variable has an invalid value.
        """
        environ = {**environ, **job.env}
        return cls(
            progress=OPTIONS["progress"].in_environ(environ) or cls.progress,
            is_verbose=log_filter.is_verbose(environ),
            expects_gpu=native_log.are_here()
            or any(job.resources_of(task).gpus for task in job.tasks),
        )
