"""What the supervisor knows of one task."""

import signal

from estimator_runtime.launch.logs import TaskLog
from estimator_runtime.launch.restarts import Budget, Failure
from estimator_runtime.launch.task import Run


class Watch:
    """One task, its present run, and what is known of it.

    Attributes:
        task: The task.
        log: Its `TaskLog`.
        budget: Its restarts, or those of its gang.
        run: The present or last `Run`.
        is_running: Whether that run has started and not ended.
        status: The exit status of the last run, or None.
        restart_at: When it is to be started again, or None.
        kill_at: When it has had its time to end by itself, or None.
        given_secs: How long that time is; None if nobody has to be told.
        killed_at: When it was sent SIGKILL, or None.
        report: All that the present run reported, by key.
        heard_at: When it last sent a report, or was started.
        worked_at: When it was last seen to use the CPU while it sent none; no earlier
            than `heard_at`.
        has_lived: Whether the present run gave one.
        is_displaced: Whether its last run lost its address.
        is_dismissed: Whether nothing more is expected of it, however it ends.
        folded: How many deprecation warnings all its runs have left out.
    """

    def __init__(self, task, max_restarts, refill_secs=3600.0, leads=False):
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
        self.report = {}
        self.heard_at = self.worked_at = 0.0
        self.has_lived = False
        self.is_named_silent = False
        self.named_working_secs = 0.0  # the silence that the log has told of
        self.killed_for: str | None = None
        self.is_displaced = self.is_dismissed = False
        self.folded = 0

    def start(self, now):
        """Give the next run, which starts now."""
        attempt = 0 if self.run is None else self.run.attempt + 1
        self.run = Run(task=self.task, attempt=attempt)
        self.is_running, self.status = True, None
        self.restart_at = self.kill_at = self.given_secs = self.killed_at = None
        self.report, self.killed_for, self.is_displaced = {}, None, False
        self.log.start_run()
        self.hear({}, now)
        self.has_lived = False
        return self.run

    def hear(self, report, now):
        """Take note of a report."""
        self.report.update(report)
        self.folded += report.get("folded", 0)
        self.heard_at = self.worked_at = now
        self.has_lived, self.is_named_silent = True, False
        self.named_working_secs = 0.0

    def work(self, now: float) -> None:
        """Take note that it uses the CPU, although it sends no reports."""
        self.worked_at, self.is_named_silent = now, False

    def wait_longer(self, secs):
        """Let time have stood still for so long."""
        self.heard_at += secs
        self.worked_at += secs
        if self.killed_at is not None:
            self.killed_at += secs

    def end(self, status, cause=None, is_displaced=False):
        """Take note of the end of the run; see `task.Ended`."""
        self.is_running, self.status = False, status
        self.is_displaced = is_displaced
        # That it was silent says more than how it was then killed.
        self.killed_for = self.killed_for or cause

    @property
    def has_ended_well(self) -> bool:
        """Whether its last run ended with status 0, and with nothing left to train."""
        return not self.is_running and self.status == 0 and not self._unfinished

    @property
    def has_succeeded(self):
        """Whether its last run ended well, and there is to be no other."""
        return self.has_ended_well and self.restart_at is None

    @property
    def _unfinished(self) -> list[str]:
        """The folders whose training the present run has begun and not ended.

        Others than the one that leads may leave: what they train, it saves.
        """
        return self.report.get("unfinished", []) if self._leads else []

    @property
    def has_left(self):
        """Whether it is gone, and nothing was expected of it any more."""
        return self.is_dismissed and not self.is_running

    @property
    def failure(self):
        """Why its last run failed."""
        # An evaluator's step is that of the checkpoint that it evaluated last.
        evaluated = self.report.get("metrics", {}).get("global_step")
        step = self.report.get("step", evaluated)
        return Failure(
            status=self.status or 0,
            error=tuple(self.report.get("error", ())),
            step=None if step is None else int(step),
            is_in_vain=self.is_displaced and not self.has_lived,
        )

    def how_it_ended(self):
        """Say it in a few words."""
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
