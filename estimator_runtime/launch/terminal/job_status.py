"""The progress of a job as numbers; `screen` shows them, `--metrics` writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from estimator_runtime.output.metrics_file import MetricsFile, path_in

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskStatus:
    """The progress of a task.

    Attributes:
        name: The task, as text.
        state: What the task does while it does not train, such as "done", "importing
            TensorFlow", or "finishing" after the last step; None while it trains or
            evaluates.
        step: The global step that it reported last, or None.
        rate: Steps per second that it trains itself, or None if it takes none.
        loss: The loss that it logged last, or None.
        metrics: The metrics of its last evaluation by name; empty if there was none.
        best_metric: The metric that decides which checkpoints are best, or None.
        pid: The pid of its process, on the machine on which it runs; None if it is not
            known, or the process has ended.
        restarts: How often it has been restarted.
        log: Path of its log, or None.
    """

    name: str
    state: str | None = None
    step: int | None = None
    rate: float | None = None
    loss: float | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    best_metric: str | None = None
    pid: int | None = None
    restarts: int = 0
    log: str | None = None

    def evaluation(self, most: int | None = None) -> str:
        """Return the step and the metrics of its last evaluation.

        The loss and `best_metric` come first.

        Args:
            most: How many metrics to name at most; None for all.
        """
        first = [name for name in ("loss", self.best_metric) if name in self.metrics]
        others = self.metrics.keys() - {*first, "global_step"}
        names = [*first, *(name for name in self.metrics if name in others)]
        shown = ", ".join(f"{name} {self.metrics[name]:.5g}" for name in names[:most])
        if "global_step" not in self.metrics:
            return shown
        return f"step {self.metrics['global_step']:.0f}: {shown}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The progress of a job.

    Attributes:
        elapsed_secs: Seconds since the first look.
        step: The global step. Until a task has reported one, that of the newest
            checkpoint, from which a training goes on; else 0.
        last_step: The global step at which the training ends, or None if unknown.
        rate: Global steps per second, or None if it is not known yet, if no step has
            come for long, or if the training has reached its last step.
        saved_step: The global step of the newest checkpoint, or None.
        restarts: The number of restarts so far.
        tasks: The `TaskStatus` of each task.
        model_dir: The model directory, or None if it is not known yet.
        hidden_warnings: How many deprecation warnings the tasks have left out.
    """

    elapsed_secs: float
    step: int
    last_step: int | None
    rate: float | None
    saved_step: int | None
    restarts: int
    tasks: tuple[TaskStatus, ...]
    model_dir: str | None = None
    hidden_warnings: int = 0

    @property
    def loss(self) -> float | None:
        """The loss of the first task that logs one: the chief, if there is one."""
        known = (task.loss for task in self.tasks if task.loss is not None)
        return next(known, None)


def is_reached(step: int | None, last_step: int | None) -> bool:
    """Return whether a step is known to be the last one, or a later one."""
    return step is not None and last_step is not None and step >= last_step


class JobMetrics:
    """Appends a line whenever the progress of a job has news.

    Args:
        file: The file.
    """

    def __init__(self, file: MetricsFile) -> None:
        self._file = file
        self._before: JobStatus | None = None

    @classmethod
    def of(cls, job: Job, environ: Mapping[str, str]) -> JobMetrics | None:
        """Return what writes the metrics of a job, or None if no file is named."""
        path = path_in({**environ, **job.env})
        return None if path is None else cls(MetricsFile(path))

    def write(self, seen: JobStatus) -> None:
        """Append what is new since the last call."""
        before, self._before = self._before, seen
        step = seen.step
        if before is None:
            return
        if seen.restarts != before.restarts:
            self._file.write("restart", step, restarts=seen.restarts)
        # The first one that is found may be of an earlier run.
        is_new = seen.saved_step not in (None, before.saved_step)
        if is_new and before.model_dir is not None:
            self._file.write("checkpoint", seen.saved_step)
        for task, its_before in zip(seen.tasks, before.tasks, strict=True):
            if task.metrics and task.metrics != its_before.metrics:
                self._file.evaluation(task.metrics)
        if step != before.step:
            self._write_progress(seen)

    def _write_progress(self, seen: JobStatus) -> None:
        """Append the progress, if a task has reported a step."""
        tasks = {
            task.name: {"step": task.step, "steps_per_sec": task.rate}
            for task in seen.tasks
            if task.step is not None
        }
        if tasks:
            self._file.write(
                "progress",
                seen.step,
                last_step=seen.last_step,
                loss=seen.loss,
                steps_per_sec=seen.rate,
                restarts=seen.restarts,
                tasks=tasks,
            )
