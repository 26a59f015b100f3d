"""What the launcher shows of a job: the lines of its tasks, and its progress."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from estimator_runtime.config.options import OPTIONS
from estimator_runtime.launch.terminal import levels
from estimator_runtime.launch.terminal.levels import LevelFilter
from estimator_runtime.output import log_filter
from estimator_runtime.output.terminal import time_left

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job
    from estimator_runtime.launch.task import Task
    from estimator_runtime.launch.terminal.console import Console
    from estimator_runtime.launch.terminal.job_status import JobStatus, TaskStatus

# Elsewhere than on a terminal, a line with the progress is written that often.
_LINE_SECS = 10.0
# A bar with fewer characters shows nothing.
_LEAST_BAR = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class DisplaySettings:
    """The settings of what is shown of a job.

    Attributes:
        progress: On a terminal, "bar" or "auto" for a row per task and a bar for the
            whole job, below all other lines; "plain" for one line there. Elsewhere, a
            line every ten seconds while the global step changes. "none" for nothing.
        log_level: The lowest level of log lines that is shown; None for "warning" above
            rows on a terminal, and "debug" elsewhere.
    """

    progress: str = "auto"
    log_level: str | None = None

    @classmethod
    def of(cls, job: Job, environ: Mapping[str, str]) -> DisplaySettings:
        """Read the settings from the environment that the tasks of a job get.

        The variables of the job win over `environ`, that of this process.

        Raises:
            ConfigError: If a variable has an invalid value.
        """
        environ = {**environ, **job.env}
        level = levels.in_environ(environ)
        return cls(
            progress=OPTIONS["progress"].in_environ(environ) or cls.progress,
            log_level="debug" if log_filter.is_verbose(environ) else level,
        )


class Screen:
    """The output of one job: lines of tasks, and the progress of the job.

    Log lines below the wanted level are left out. At the end the screen reports how
    many.

    Attributes:
        console: The console that everything is written to.
    """

    def __init__(self, console: Console, settings: DisplaySettings) -> None:
        self.console, self._settings = console, settings
        has_rows = settings.progress != "none" and console.is_terminal
        self._level = settings.log_level or ("warning" if has_rows else "debug")
        # By task, as a message may have several lines.
        self._levels: dict[Task, LevelFilter] = {}
        self._below_count = self._warning_count = 0
        self._shown_at: float | None = None
        self._step = 0

    def write(self, task: Task, line: str, is_error: bool) -> None:
        """Show a line of a task.

        A line of standard error that is below the wanted level is only in the log.
        """
        level = self._levels.setdefault(task, LevelFilter(self._level))
        if is_error and level.hides(line):
            self._below_count += 1
            return
        self.console.write(str(task), line, is_error)

    def show(self, seen: JobStatus, now: float) -> None:
        """Show the progress of the job; call this once a second."""
        self._warning_count = seen.hidden_warnings
        console, progress = self.console, self._settings.progress
        if progress == "none":
            return
        self._shown_at = now if self._shown_at is None else self._shown_at
        if not console.is_terminal:
            if now - self._shown_at >= _LINE_SECS and seen.step != self._step:
                self._shown_at, self._step = now, seen.step
                console.say(line(seen))
        elif progress == "plain":
            console.status([("", line(seen))])
        else:
            rows = [(task.name, describe(task)) for task in seen.tasks]
            bar = total(seen, console.columns)
            console.status([*rows, ("total", bar)])

    def close(self) -> None:
        """Leave the last status rows, and report how many lines were left out."""
        self.console.keep_status()
        if self._warning_count:
            self.console.say(log_filter.summary(self._warning_count))
        if self._below_count:
            noun = "line is" if self._below_count == 1 else "lines are"
            self.console.say(
                f"{self._below_count} {noun} only in the logs of the tasks; "
                f"--log-level {levels.LEVELS[0]} shows them here"
            )


def line(seen: JobStatus, has_rows: bool = False) -> str:
    """Return the progress of a job as one line.

    Rates are measured over the last seconds. The total is the rate of the global step.
    The rate of a task counts only the steps that it has trained itself.

    Args:
        seen: The progress.
        has_rows: Whether each task has a row of its own, which has its rate and its
            evaluation.
    """
    of = "" if seen.last_step is None else f" of {seen.last_step}"
    saved = "none" if seen.saved_step is None else seen.saved_step
    left = time_left(seen.step, seen.last_step, seen.rate)
    elapsed = datetime.timedelta(seconds=int(seen.elapsed_secs))
    without_rows = () if has_rows else seen.tasks
    parts = [
        f"step {seen.step}{of}",
        f"checkpoint {saved}",
        None if seen.rate is None else _rates(seen.rate, without_rows),
        None if left is None else f"{left} left",
        None if seen.loss is None else f"loss {seen.loss:.4g}",
        *(f"evaluated {it.evaluation(most=2)}" for it in without_rows if it.metrics),
        f"restarts {seen.restarts}" if seen.restarts else None,
        f"{elapsed} elapsed" if has_rows else None,
    ]
    return " | ".join(filter(None, parts))


def _rates(total: float, tasks: Sequence[TaskStatus]) -> str:
    """Return the rate of a job, with those of its tasks in brackets."""
    rates = [f"{it.name} {it.rate:.1f}" for it in tasks if it.rate is not None]
    each = f" ({', '.join(rates)})" if rates else ""
    return f"{total:.1f} steps/s{each}"


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


def total(seen: JobStatus, columns: int) -> str:
    """Return the progress of the whole job, after a bar if there is room for one."""
    text = line(seen, has_rows=True)
    if not seen.last_step:
        return text
    share = min(1.0, seen.step / seen.last_step)  # workers may overshoot
    percentage = f"{share:4.0%} |"
    width = columns - len(percentage) - len("| ") - len(text)
    if width < _LEAST_BAR:
        return text
    bar = "#" * int(share * width)
    return f"{percentage}{bar:<{width}}| {text}"
