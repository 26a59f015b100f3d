"""Views of a job's progress: rows on a terminal, or a line at intervals."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from estimator_runtime.config.options import OPTIONS
from estimator_runtime.launch.terminal.startup_noise import Preamble
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


class View(Protocol):
    """A way to show the progress of a job."""

    def show(self, now: float) -> None:
        """Show the progress, if it is time; call this often."""


def choose(mode: str, console: Console, status: Status) -> View:
    """Return the view that a mode stands for.

    Args:
        mode: "bar", "plain", "none" or "auto". "auto" is "bar" if tqdm is installed,
            and "plain" otherwise.
        console: Where the progress is shown. If it is not a terminal, nothing can be
            redrawn below the lines of the tasks, so a bar becomes lines.
        status: The `Status` of the job.
    """
    if mode == "auto":
        mode = "bar" if importlib.util.find_spec("tqdm") is not None else "plain"
    if mode == "none":
        return Nothing()
    if not console.is_terminal:
        return StatusLines(console, status)
    return Rows(console, status) if mode == "bar" else StatusLine(console, status)


class Nothing:
    """A view that shows nothing."""

    def show(self, now: float) -> None:
        """Do nothing."""


class Rows:
    """A row for each task and a bar for the whole job, below all other lines."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console, self._status = console, status

    def show(self, now: float) -> None:
        """Draw the rows and the bar, if it is time."""
        seen = self._status.look(now)
        if seen is not None:
            bar = total(seen, self._console.columns, self._console.can_unicode)
            each = [(task.name, describe(task)) for task in seen.tasks]
            self._console.status([*each, ("total", bar)])


class StatusLine:
    """One status line below all other lines."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console, self._status = console, status

    def show(self, now: float) -> None:
        """Draw the line, if it is time."""
        seen = self._status.look(now)
        if seen is not None:
            self._console.status([("", line(seen))])


class StatusLines:
    """A status line every ten seconds, among the lines of the tasks.

    A job that ends within ten seconds gets none.
    """

    def __init__(self, console: Console, status: Status) -> None:
        self._console, self._status = console, status
        self._said_at: float | None = None
        self._step = 0

    def show(self, now: float) -> None:
        """Write a line, if it is time and the global step has changed."""
        if self._said_at is None:
            self._said_at = now
        seen = self._status.look(now)
        if seen is None or now - self._said_at < _LINE_SECS or seen.step == self._step:
            return
        self._said_at, self._step = now, seen.step
        self._console.say(line(seen))


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
    parts = [task.state] if task.state else []
    if task.step is not None:
        parts.append(f"step {task.step}")
    if task.rate is not None:
        parts.append(f"{task.rate:.1f} steps/s")
    if task.loss is not None:
        parts.append(f"loss {task.loss:.4g}")
    if task.metrics:
        parts.append(f"evaluated: {_metrics(task.metrics)}")
    return ", ".join(parts)


def total(seen: JobStatus, columns: int, can_unicode: bool) -> str:
    """Return the bar of the whole job, or a count if the last step is unknown.

    Args:
        seen: The progress of the job.
        columns: Maximum width in characters.
        can_unicode: Whether the terminal can show characters outside ASCII.
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
    """The terminal output of one job.

    It shows the lines of the tasks and the progress of the job. At the end it reports
    how many lines were left out.

    Attributes:
        console: The `Console` that everything is written to.
    """

    def __init__(self, console: Console, presentation: Presentation) -> None:
        """Store the console, and the `Presentation` of the job."""
        self.console, self._presentation = console, presentation
        self._preamble = Preamble(presentation.expects_gpu)
        self._watches: Sequence[TaskState] = []
        self._view: View = Nothing()

    def open(self, watches: Sequence[TaskState], status: Status) -> None:
        """Start to show the job of these tasks.

        Args:
            watches: The `TaskState` of every task.
            status: The `Status` of the job.
        """
        self._watches = watches
        self.console.introduce([str(watch.task) for watch in watches])
        self._view = choose(self._presentation.progress, self.console, status)

    def write(self, task: Task, line: str, is_error: bool) -> None:
        """Show a line of a task, unless it is startup noise on standard error."""
        if not (is_error and self._leaves_out(line)):
            self.console.write(str(task), line, is_error)

    def write_of_parent(self, line: str) -> None:
        """Show a line of the process that starts the tasks, unless it is noise.

        This method is thread-safe.
        """
        if not self._leaves_out(line):
            self.console.say(line)

    def show(self, now: float) -> None:
        """Show the progress of the job, if it is time."""
        self._view.show(now)

    def close(self) -> None:
        """Remove the status rows, and report how many lines were left out."""
        self.console.status([])
        warnings = sum(watch.hidden_warnings for watch in self._watches)
        if warnings or self._preamble.count:
            self.console.say(log_filter.summary(warnings, self._preamble.count))

    def _leaves_out(self, line: str) -> bool:
        return not self._presentation.is_verbose and self._preamble.takes(line)


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

        Args:
            job: The `Job`; its own variables win over `environ`.
            environ: The environment of this process.

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
