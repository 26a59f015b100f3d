"""The numbers of a job, written into the file that `--metrics` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from estimator_runtime.output.metrics_file import MetricsFile, path_in

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job
    from estimator_runtime.launch.terminal.job_status import JobStatus


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
        """Return what writes the metrics of a job, or None if nobody wants them."""
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
        if seen.saved_step not in (None, before.saved_step):
            self._file.write("checkpoint", seen.saved_step)
        for task, its_before in zip(seen.tasks, before.tasks, strict=True):
            if task.metrics and task.metrics != its_before.metrics:
                self._file.evaluation(task.metrics)
        if step != before.step:
            self._file.write(
                "progress",
                step,
                last_step=seen.last_step,
                loss=seen.loss,
                steps_per_sec=seen.rate,
                restarts=seen.restarts,
                tasks={
                    task.name: {"step": task.step, "steps_per_sec": task.rate}
                    for task in seen.tasks
                    if task.step is not None
                },
            )
