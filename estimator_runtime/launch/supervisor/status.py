"""The progress of a job in numbers, for those who show it."""

from __future__ import annotations

import collections
import signal

from estimator_runtime.launch.supervisor import policies
from estimator_runtime.launch.supervisor.machine import JobState, TaskPhase, TaskState
from estimator_runtime.launch.supervisor.record import Record
from estimator_runtime.launch.task import Run
from estimator_runtime.launch.terminal.job_status import (
    JobStatus,
    TaskStatus,
    is_reached,
)

# The window of a rate. Tasks report once a second, so a shorter one would fluctuate.
_RATE_SECS = 10.0


class Status:
    """Computes the progress of a job."""

    def __init__(self, job: JobState, record: Record) -> None:
        self._job, self._record = job, record
        self._states = list(job.tasks.values())
        self._first: float | None = None
        self._total = _Rate()
        # By run, because the count of a restarted task starts again.
        self._rates: dict[Run, _Rate] = {}

    def now(self, now: float) -> JobStatus:
        """Return the progress of the job."""
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
            rate=None if is_reached(step, last_step) else rate,
            saved_step=saved_step,
            restarts=self._record.restarts,
            tasks=tuple(self._status_of(each, last_step, now) for each in self._states),
            model_dir=self._record.model_dir,
            hidden_warnings=sum(each.hidden_warnings for each in self._states),
        )

    def _step(self) -> int | None:
        """Return the global step; None until a task has reported one."""
        # After a restart the restored step may be lower than what an ended run
        # reported. So take the highest step of the running tasks. When none runs any
        # more, take the highest step of those that ran.
        reporting = [state for state in self._states if "step" in state.report]
        running = [state for state in reporting if state.is_alive]
        steps = [
            max(state.report["step"], state.report.get("trained") or 0)
            for state in running or reporting
        ]
        return max(steps, default=None)

    def _status_of(
        self, state: TaskState, last_step: int | None, now: float
    ) -> TaskStatus:
        report, run = state.report, state.last.run
        doing, rate = self._doing(state, now), None
        if state.is_alive and is_reached(report.get("step"), last_step):
            doing = doing or "finishing"
        elif state.is_alive and "steps_here" in report:
            rate = self._rates.setdefault(run, _Rate()).after(report["steps_here"], now)
        return TaskStatus(
            name=str(state.task),
            state=doing,
            step=report.get("step"),
            rate=rate,
            loss=report.get("loss"),
            metrics=report.get("metrics", {}),
            best_metric=report.get("best_metric"),
            pid=report.get("pid") if state.is_alive else None,
            restarts=max(0, run.attempt),
            log=self._record.logs.of[state.task].path,
        )

    def _doing(self, state: TaskState, now: float) -> str | None:
        """Return what a task does that neither trains nor has evaluated, or None."""
        if policies.is_silent(self._job, state, now):
            return f"no sign of life for {now - state.last.heard_at:.0f} s"
        has_run = state.last.run.attempt >= 0
        if state.phase is TaskPhase.WAITING and self._job.ending is None and has_run:
            secs = max(0.0, state.start_at - now)
            return f"restarting in {secs:.0f} s" if secs else "restarting"
        if not state.is_alive:
            if not has_run:
                return "starting" if self._job.ending is None else "not started"
            by_request = state.failure.is_stop or state.last.status == -signal.SIGTERM
            if by_request and self._job.ending is not None:
                return "stopped"  # with the job, whose last lines say why
            return "done" if state.is_done else state.how_it_ended()
        if state.report.keys() & {"step", "metrics"}:
            return None
        if state.phase is TaskPhase.STARTING:
            return "starting"
        if "imported" not in state.report:
            return "importing TensorFlow"
        return state.report.get("doing", "running")


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
        # Keep at least two entries, so that a slow count has a rate too.
        while len(changes) > 2 and now - changes[1][0] > _RATE_SECS:
            changes.popleft()
        (begun_at, begun), (grown_at, _) = changes[0], changes[-1]
        if now - grown_at > max(_RATE_SECS, grown_at - begun_at):
            return None
        return (count - begun) / (now - begun_at)
