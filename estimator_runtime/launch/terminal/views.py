"""What is shown of a job: lines of its tasks, and its progress, as rows or as lines."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from estimator_runtime.config.options import OPTIONS
from estimator_runtime.launch.terminal import levels
from estimator_runtime.launch.terminal.levels import LevelFilter
from estimator_runtime.output import log_filter
from estimator_runtime.output.terminal import time_left

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job
    from estimator_runtime.launch.supervisor.task_state import TaskState
    from estimator_runtime.launch.task import Task
    from estimator_runtime.launch.terminal.console import Console
    from estimator_runtime.launch.terminal.job_status import (
        JobStatus,
        TaskStatus,
    )

_LINE_SECS = 10.0


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
    """

    def __init__(self, mode: str, console: Console) -> None:
        if mode == "auto":
            mode = "bar" if importlib.util.find_spec("tqdm") is not None else "plain"
        self._mode, self._console = mode, console
        self._said_at: float | None = None
        self._step = 0

    @property
    def has_rows(self) -> bool:
        """Whether the progress is below the lines of the tasks, on a terminal."""
        return self._mode != "none" and self._console.is_terminal

    def show(self, seen: JobStatus, now: float) -> None:
        """Show the progress of the job; call this once a second."""
        if self._mode == "none":
            return
        self._said_at = now if self._said_at is None else self._said_at
        console = self._console
        if not console.is_terminal:
            if now - self._said_at >= _LINE_SECS and seen.step != self._step:
                self._said_at, self._step = now, seen.step
                console.say(line(seen))
        elif self._mode == "bar":
            rows = [(task.name, describe(task)) for task in seen.tasks]
            bar = total(seen, console.columns, console.can_unicode)
            about = places(seen, console.pinned)
            more = [("launcher", about)] if about else []
            console.status([*rows, *more, ("total", bar)])
        else:
            console.status([("", line(seen))])


def line(seen: JobStatus) -> str:
    """Return the progress of a job as one line.

    Rates are measured over the last seconds. The total is the rate of the global step.
    The rate of a task counts only the steps that it has trained itself.
    """
    of = "" if seen.last_step is None else f" of {seen.last_step}"
    parts = [f"step {_trained(seen)}{of}"]
    if seen.awaited:
        parts.append(f"waiting for {', '.join(seen.awaited)}")
    elif seen.rate is not None:
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
            parts.append(f"evaluated {task.evaluation(most=2)}")
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
        f"evaluated {task.evaluation()}" if task.metrics else None,
        None if task.pid is None else f"pid {task.pid}",
    ]
    return ", ".join(filter(None, parts))


def total(seen: JobStatus, columns: int, can_unicode: bool) -> str:
    """Return the bar of the whole job, or a count if the last step is unknown.

    It has at most so many columns: where they are few, the bar goes first, then the
    times and the loss, and last the newest checkpoint. `can_unicode` allows characters
    outside ASCII.
    """
    from tqdm import tqdm

    saved = None if seen.saved_step is None else f"saved=step {seen.saved_step}"
    loss = None if seen.loss is None else f"loss={seen.loss:.4g}"
    restarts = f"restarts={seen.restarts}" if seen.restarts else None
    waiting = f"waiting for {', '.join(seen.awaited)}" if seen.awaited else None

    def meter(columns: int | None, remarks: Sequence[str | None], form: str) -> str:
        return tqdm.format_meter(
            _trained(seen),
            seen.last_step,
            seen.elapsed_secs,
            ncols=columns,
            ascii=not can_unicode,
            unit="step",
            rate=seen.rate,
            bar_format=form,
            postfix=", ".join(filter(None, remarks)),
        )

    everything = (loss, saved, restarts, waiting)
    times = "" if seen.is_trained else "<{remaining}, {rate_fmt}"
    if seen.last_step is None:
        count, bar = "{n_fmt}{unit} ", ""
        times = ", {rate_fmt}"
    else:
        count, bar = "{n_fmt}/{total_fmt} ", "{percentage:3.0f}%|{bar}| "
    full = f"{count}[{{elapsed}}{times}{{postfix}}]"
    # What is left of the columns is the width of the bar.
    if bar and len(meter(None, everything, f"100%|| {full}")) < columns:
        return meter(columns, everything, f"{bar}{full}")
    for remarks, form in (
        (everything, full),
        ((saved, restarts, waiting), full),
        ((saved, restarts, waiting), f"{count}[{{postfix}}]"),
        ((saved,), f"{count}[{{postfix}}]"),
    ):
        text = meter(None, remarks, form).replace("[, ", "[").replace("[]", "")
        if len(text) <= columns:
            return text
    return text[:columns]


def places(seen: JobStatus, pinned: Sequence[str]) -> str:
    """Return where else the user finds something about the job, as one line."""
    logs = [] if seen.log_dir is None else [f"logs: {seen.log_dir}"]
    return ", ".join([*pinned, *logs])


def _trained(seen: JobStatus) -> int:
    """Return the global step, but no more than the last one: workers may overshoot."""
    return seen.step if seen.last_step is None else min(seen.step, seen.last_step)


class Screen:
    """The terminal output of one job: lines of tasks, and the progress of the job.

    At the end the screen reports how many lines were left out.

    Attributes:
        console: The console that everything is written to.
    """

    def __init__(self, console: Console, presentation: Presentation) -> None:
        self.console, self._presentation = console, presentation
        self._tasks: Sequence[TaskState] = []
        self._view: View | None = None
        self._below_count = 0
        self._filters: dict[Task, LevelFilter] = {}

    def open(self, tasks: Sequence[TaskState]) -> None:
        """Start to show the job of these tasks."""
        self._tasks = tasks
        self.console.introduce([str(each.task) for each in tasks])
        self._view = View(self._presentation.progress, self.console)
        level = self._presentation.level(self._view.has_rows)
        self._filters = {each.task: LevelFilter(level) for each in tasks}

    def write(self, task: Task, line: str, is_error: bool) -> None:
        """Show a line of a task, unless it is an error line below the wanted level."""
        level = self._filters.get(task)
        if is_error and level is not None and level.hides(line):
            self._below_count += 1
            return
        self.console.write(str(task), line, is_error)

    def write_of_fork_server(self, line: str) -> None:
        """Show a line of the fork server; thread-safe."""
        self.console.say(line)

    def show(self, seen: JobStatus, now: float) -> None:
        """Show the progress of the job."""
        if self._view is not None:
            self._view.show(seen, now)

    def close(self) -> None:
        """Leave the last status rows, and report how many lines were left out."""
        self.console.keep_status()
        warnings = sum(each.hidden_warnings for each in self._tasks)
        if warnings:
            self.console.say(log_filter.summary(warnings))
        if self._below_count:
            noun = "line is" if self._below_count == 1 else "lines are"
            hidden = (each.hidden for each in self._filters.values())
            lowest = min(filter(None, hidden), key=levels.LEVELS.index)
            self.console.say(
                f"{self._below_count} {noun} only in the logs of the tasks; "
                f"--log-level {lowest} shows them here"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Presentation:
    """The settings of what is shown of a job.

    Attributes:
        progress: "bar", "plain", "none" or "auto".
        is_verbose: Whether every line is shown.
        log_level: The lowest level of log lines that is shown; None for "warning" above
            rows on a terminal, and "debug" elsewhere.
    """

    progress: str = "auto"
    is_verbose: bool = False
    log_level: str | None = None

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
            log_level=levels.in_environ(environ),
        )

    def level(self, has_rows: bool) -> str:
        """Return the lowest level of log lines that is shown.

        `has_rows` is whether the progress is in rows below the lines.
        """
        if self.is_verbose:
            return "debug"
        return self.log_level or ("warning" if has_rows else "debug")
