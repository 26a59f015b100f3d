"""The state of one task, as the supervisor knows it."""

from __future__ import annotations

import signal
from typing import Any

from estimator_runtime.config.role import TaskType
from estimator_runtime.launch.supervisor.restart_policy import Budget, Failure
from estimator_runtime.launch.supervisor.task_log import TaskLog
from estimator_runtime.launch.task import Run, Task

_SIGNS_OF_TRAINING = frozenset(
    ("checkpoint_dir", "model_dir", "step", "trained", "unfinished")
)


class TaskState:
    """One task, its current run, and what is known of both.

    Args:
        task: The task.
        max_restarts: How often the task may be restarted.
        refill_secs: Seconds of progress after which all restarts are available again.
        leads: Whether the task is the leader, which saves the checkpoints.

    Attributes:
        log: The log of the task.
        budget: Its restarts, or those of its gang.
        run: The current or last run; None before the first.
        is_running: Whether that run has started and not ended.
        status: The exit status of the last run, or None.
        restart_at: When the task is to be restarted, or None.
        kill_at: The deadline by which the task has to end by itself, or None.
        given_secs: How much time the task had until that deadline; None if the user is
            not to be told.
        killed_at: When the task was sent SIGKILL, or None.
        report: Everything that the current run has reported, by key.
        step_folders: The `folders` when it last reported a step.
        heard_at: When the task last sent a report, or was started.
        worked_at: When the task was last seen to use the CPU without sending a report;
            no earlier than `heard_at`.
        has_trained: Whether a run has reported a training, or where one saves.
        has_lived: Whether the current run has given a sign of life.
        is_named_silent: Whether the launcher has named the task as silent.
        named_working_secs: The length of the silence that the launcher has reported of
            a task that uses the CPU.
        killed_for: Why the current run was killed or how it was lost, or None.
        is_displaced: Whether no task can be started at the address of the last run.
        is_dismissed: Whether the job goes on without the task, however it ends.
        hidden_warnings: How many deprecation warnings all its runs have hidden.
    """

    def __init__(
        self,
        task: Task,
        max_restarts: int,
        refill_secs: float = 3600.0,
        leads: bool = False,
    ) -> None:
        self.task, self._leads = task, leads
        self.log = TaskLog(task)
        self.budget = Budget(max_restarts, refill_secs)
        self.run: Run | None = None
        self.is_running = False
        self.status: int | None = None
        self.restart_at: float | None = None
        self.kill_at: float | None = None
        self.given_secs: float | None = None
        self.killed_at: float | None = None
        self.report: dict[str, Any] = {}
        self.step_folders: set[str] = set()
        self.heard_at = self.worked_at = 0.0
        self.has_lived = self.has_trained = False
        self.is_named_silent = False
        self.named_working_secs = 0.0
        self.killed_for: str | None = None
        self.is_displaced = self.is_dismissed = False
        self.hidden_warnings = 0

    def start(self, now: float) -> Run:
        """Return the next run, and record that it starts now."""
        attempt = 0 if self.run is None else self.run.attempt + 1
        self.run = Run(task=self.task, attempt=attempt)
        self.is_running, self.status = True, None
        self.restart_at = self.kill_at = self.given_secs = self.killed_at = None
        self.report, self.killed_for, self.is_displaced = {}, None, False
        self.step_folders = set()
        self.log.start_run()
        self.hear({}, now)
        self.has_lived = False
        return self.run

    def hear(self, report: dict[str, Any], now: float) -> None:
        """Record a report of the current run; an empty one is a mere sign of life."""
        self.report.update(report)
        if "step" in report:
            self.step_folders = self.folders
        self.hidden_warnings += report.get("hidden", 0)
        if not report.keys().isdisjoint(_SIGNS_OF_TRAINING):
            self.has_trained = True
        self.heard_at = self.worked_at = now
        self.has_lived, self.is_named_silent = True, False
        self.named_working_secs = 0.0

    def work(self, now: float) -> None:
        """Record that the task uses the CPU, although it sends no reports."""
        self.worked_at, self.is_named_silent = now, False

    def wait_longer(self, secs: float) -> None:
        """Ignore a time in which the supervisor itself was not running."""
        self.heard_at += secs
        self.worked_at += secs
        if self.kill_at is not None:
            self.kill_at += secs
        if self.killed_at is not None:
            self.killed_at += secs

    def end(
        self, status: int, cause: str | None = None, is_displaced: bool = False
    ) -> None:
        """Record the end of the current run; see `task.Ended`."""
        self.is_running, self.status = False, status
        self.is_displaced = is_displaced
        # The silence of a task says more than the signal that then killed it.
        self.killed_for = self.killed_for or cause

    @property
    def folders(self) -> set[str]:
        """The last model directory and folder of a session that its run has named."""
        names = ("model_dir", "checkpoint_dir")
        return {self.report[name] for name in names if name in self.report}

    @property
    def has_ended_well(self) -> bool:
        """Whether its last run ended with status 0, and with nothing left to train."""
        return not self.is_running and self.status == 0 and not self._unfinished

    @property
    def has_succeeded(self) -> bool:
        """Whether its last run ended well, and no restart is planned."""
        return self.has_ended_well and self.restart_at is None

    @property
    def is_done(self) -> bool:
        """Whether it has ended as it should: well, or as a ps that nobody needs."""
        is_released = self.task.type == TaskType.PS and self.has_left
        return self.has_ended_well or is_released

    @property
    def _unfinished(self) -> list[str]:
        """The folders whose training the current run has begun and not ended.

        Empty for every task but the leader. The other tasks may leave early, because
        the leader saves what they train.
        """
        return self.report.get("unfinished", []) if self._leads else []

    @property
    def has_ended_its_trainings(self) -> bool:
        """Whether its last run has ended all trainings that it began, if any."""
        return self.report.get("unfinished") == []

    @property
    def has_left(self) -> bool:
        """Whether the task has been dismissed and does not run."""
        return self.is_dismissed and not self.is_running

    @property
    def failure(self) -> Failure:
        """Why its last run failed."""
        # The step of an evaluator is that of the checkpoint that it evaluated last.
        evaluated = self.report.get("metrics", {}).get("global_step")
        step = self.report.get("step", evaluated)
        return Failure(
            status=self.status or 0,
            error=tuple(self.report.get("error", ())),
            step=None if step is None else int(step),
            is_in_vain=self.is_displaced and not self.has_lived,
        )

    def how_it_ended(self) -> str:
        """Return a short description of how the last run ended, for the user."""
        if self.killed_for:
            return self.killed_for
        if self.status is not None and self.status < 0:
            try:
                name = signal.Signals(-self.status).name
            except ValueError:
                name = f"signal {-self.status}"
            return f"was killed by {name}"
        if self.status == 0 and self._unfinished:
            of = " and ".join(map(repr, filter(None, self._unfinished)))
            return (
                f"exited with status 0 before its training{of and f' in {of}'} had "
                "finished (does the program catch an error, or exit early? let the "
                "error propagate, or exit with another status)"
            )
        if self.failure.is_stop:
            return f"was stopped by {self.failure.stopped_by}"
        error = self.failure.error_name
        if error and self.status:
            return f"ended with {error} (exit status {self.status})"
        return f"ended with exit status {self.status}"
