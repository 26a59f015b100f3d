"""The progress of a job as numbers; `views` shows them, `--metrics` writes them."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from estimator_runtime.output.metrics_file import MetricsFile, path_in

if TYPE_CHECKING:
    from estimator_runtime.launch.job import Job
    from estimator_runtime.launch.supervisor.job_record import Record
    from estimator_runtime.launch.supervisor.task_state import TaskState
    from estimator_runtime.launch.task import Run

_EVERY_SECS = 1.0
# The window of a rate. Tasks report once a second, so a shorter one would fluctuate.
_RATE_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskStatus:
    """The progress of a task.

    Attributes:
        name: The task, as text.
        state: What the task does while it does not train, such as "done", "running",
            or "finishing" after the last step; None while it trains or evaluates.
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
    """

    elapsed_secs: float
    step: int
    last_step: int | None
    rate: float | None
    saved_step: int | None
    restarts: int
    tasks: tuple[TaskStatus, ...]
    model_dir: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as values that JSON can represent."""
        return dataclasses.asdict(self)

    @property
    def log_dir(self) -> str | None:
        """The folder of the logs, or None if there is none yet."""
        logs = (os.path.dirname(task.log) for task in self.tasks if task.log)
        return next(logs, None)

    @property
    def is_trained(self) -> bool:
        """Whether the training has reached its last step."""
        return _is_reached(self.step, self.last_step)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The tasks that a training which has reached its last step waits for."""
        if not self.is_trained:
            return ()
        return tuple(
            task.name
            for task in self.tasks
            if task.state != "done" and not task.name.startswith("ps ")
        )

    @property
    def loss(self) -> float | None:
        """The loss of the first task that logs one: the chief, if there is one."""
        known = (task.loss for task in self.tasks if task.loss is not None)
        return next(known, None)


class Status:
    """Computes the progress of a job, at most once per second."""

    def __init__(self, states: Sequence[TaskState], record: Record) -> None:
        self._states, self._record = states, record
        self._first: float | None = None
        self._last: float | None = None
        self._total = _Rate()
        # By run, because the count of a restarted task starts again.
        self._rates: dict[Run | None, _Rate] = {}

    def poll(self, now: float) -> JobStatus | None:
        """Return the progress of the job; None if it is too early for another."""
        if self._last is not None and now - self._last < _EVERY_SECS:
            return None
        self._last = now
        return self.now(now)

    def now(self, now: float) -> JobStatus:
        """Return the progress of the job, however early it is."""
        self._first = now if self._first is None else self._first
        step, saved_step = self._step(), self._record.saved_step()
        last_steps = (state.report.get("last_step") for state in self._states)
        last_step = next((each for each in last_steps if each is not None), None)
        # Do not count from 0: the first reported step may be a restored one.
        rate = None if step is None else self._total.after(step, now)
        return JobStatus(
            elapsed_secs=now - self._first,
            step=(saved_step or 0) if step is None else step,
            last_step=last_step,
            rate=None if _is_reached(step, last_step) else rate,
            saved_step=saved_step,
            restarts=self._record.restarts,
            tasks=tuple(self._status_of(each, last_step, now) for each in self._states),
            model_dir=self._record.model_dir,
        )

    def _step(self) -> int | None:
        """Return the global step; None until a task has reported one."""
        # After a restart the restored step may be lower than what an ended run
        # reported. So take the highest step of the running tasks. When none runs any
        # more, take the highest step of those that ran.
        reporting = [state for state in self._states if "step" in state.report]
        running = [state for state in reporting if state.is_running]
        steps = [
            max(state.report["step"], state.report.get("trained") or 0)
            for state in running or reporting
        ]
        return max(steps, default=None)

    def _status_of(
        self, state: TaskState, last_step: int | None, now: float
    ) -> TaskStatus:
        report = state.report
        doing, rate = _state(state, now), None
        if state.is_running and _is_reached(report.get("step"), last_step):
            doing = doing or "finishing"
        elif state.is_running and "steps_here" in report:
            known = self._rates.setdefault(state.run, _Rate())
            rate = known.after(report["steps_here"], now)
        return TaskStatus(
            name=str(state.task),
            state=doing,
            step=report.get("step"),
            rate=rate,
            loss=report.get("loss"),
            metrics=report.get("metrics", {}),
            best_metric=report.get("best_metric"),
            pid=report.get("pid") if state.is_running else None,
            restarts=0 if state.run is None else state.run.attempt,
            log=state.log.path,
        )


def _is_reached(step: int | None, last_step: int | None) -> bool:
    return step is not None and last_step is not None and step >= last_step


class _Rate:
    """The growth of a count per second, measured over the last seconds."""

    def __init__(self) -> None:
        # (time, count)
        self._changes: collections.deque[tuple[float, int]] = collections.deque()

    def after(self, count: int, now: float) -> float | None:
        """Add the present count, and return the rate.

        It is None before the count grows, and again when the count has not grown for
        longer than the window and than it took to grow the last time.
        """
        changes = self._changes
        if changes and count < changes[-1][1]:
            changes.clear()  # it restarts from an older checkpoint
        if len(changes) == 1 and count == changes[0][1]:
            changes.clear()  # training has not begun
        if not changes or count != changes[-1][1]:
            changes.append((now, count))
        if len(changes) < 2:
            return None
        # Keep at least two entries, so that a slow count has a rate too. A pause that
        # is over does not count.
        while len(changes) > 2 and (
            now - changes[1][0] > _RATE_SECS
            or changes[1][0] - changes[0][0] > _RATE_SECS
        ):
            changes.popleft()
        grown_at = changes[-1][0]
        if now - grown_at > max(_RATE_SECS, grown_at - changes[-2][0]):
            return None
        begun_at, begun = changes[0]
        return (count - begun) / (now - begun_at)


def _state(state: TaskState, now: float) -> str | None:
    if state.restart_at is not None:
        secs = max(0.0, state.restart_at - now)
        return f"restarting in {secs:.0f} s" if secs else "restarting"
    if not state.is_running:
        if state.run is None:
            return "not started"
        return "done" if state.is_done else state.how_it_ended()
    if state.is_named_silent:
        return f"no sign of life for {now - state.heard_at:.0f} s"
    return None if state.report.keys() & {"step", "metrics"} else "running"


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
        # The first one that is found may be of an earlier run.
        is_new = seen.saved_step not in (None, before.saved_step)
        if is_new and before.model_dir is not None:
            self._file.write("checkpoint", seen.saved_step)
        for task, its_before in zip(seen.tasks, before.tasks, strict=True):
            if task.metrics and task.metrics != its_before.metrics:
                self._file.evaluation(task.metrics)
        if step != before.step and any(each.step is not None for each in seen.tasks):
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
