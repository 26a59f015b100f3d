"""The state machine of a task, and the state of a job, which has one for each task.

`TRANSITIONS` is the whole table; docs/life_of_a_task.md draws it. Only the methods of
`TaskState` change a phase. `policies` decides when, and `supervisor` executes it.
"""

from __future__ import annotations

import dataclasses
import enum
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from estimator_runtime.config.role import TaskType
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.supervisor.actions import Fail
from estimator_runtime.launch.supervisor.restart_policy import STOPPED, Budget, Failure
from estimator_runtime.launch.task import Run, Task

_SIGNS_OF_TRAINING = frozenset(
    ("checkpoint_dir", "model_dir", "step", "trained", "unfinished")
)


class TaskPhase(enum.Enum):
    """A phase in the life of a task; the value is its name in the documentation."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    KILLED = "killed"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RELEASED = "released"


class Cause(enum.Enum):
    """Moves a task to another phase; the value describes it in the documentation."""

    START = "the launcher starts its process"
    SIGN_OF_LIFE = "it sends its first report"
    TERMINATE = "it gets SIGTERM, or stops together with another task"
    KILL = "it gets SIGKILL"
    SUCCESS = "it ends with status 0, is no ps, and no leader in mid-training"
    FAILURE = "it ends in any other way"
    RESTART = "it is to be restarted"
    RELEASE = "it has ended or waits, and the job goes on without it"


# The phases in which a task has a process.
ALIVE = (
    TaskPhase.STARTING,
    TaskPhase.RUNNING,
    TaskPhase.STOPPING,
    TaskPhase.KILLED,
)
# The phases of a trainer that the job does not need any more.
NOT_NEEDED = (TaskPhase.SUCCEEDED, TaskPhase.RELEASED)
TRANSITIONS: Mapping[tuple[TaskPhase, Cause], TaskPhase] = {
    (TaskPhase.WAITING, Cause.START): TaskPhase.STARTING,
    (TaskPhase.STARTING, Cause.SIGN_OF_LIFE): TaskPhase.RUNNING,
    (TaskPhase.STARTING, Cause.TERMINATE): TaskPhase.STOPPING,
    (TaskPhase.RUNNING, Cause.TERMINATE): TaskPhase.STOPPING,
    (TaskPhase.STARTING, Cause.KILL): TaskPhase.KILLED,
    (TaskPhase.RUNNING, Cause.KILL): TaskPhase.KILLED,
    (TaskPhase.STOPPING, Cause.KILL): TaskPhase.KILLED,
    **{(phase, Cause.SUCCESS): TaskPhase.SUCCEEDED for phase in ALIVE},
    **{(phase, Cause.FAILURE): TaskPhase.FAILED for phase in ALIVE},
    (TaskPhase.FAILED, Cause.RESTART): TaskPhase.WAITING,
    (TaskPhase.SUCCEEDED, Cause.RESTART): TaskPhase.WAITING,
    (TaskPhase.WAITING, Cause.RELEASE): TaskPhase.RELEASED,
    (TaskPhase.FAILED, Cause.RELEASE): TaskPhase.RELEASED,
    (TaskPhase.STOPPING, Cause.RELEASE): TaskPhase.RELEASED,
    (TaskPhase.KILLED, Cause.RELEASE): TaskPhase.RELEASED,
}


@dataclasses.dataclass
class Attempt:
    """Everything that is known of one run of a task.

    Attributes:
        run: The run.
        heard_at: When it last sent a report, or was started.
        worked_at: When it was last seen to use the CPU without sending a report; no
            earlier than `heard_at`.
        report: Everything that it has reported, by key.
        stop_by: The deadline by which it has to end by itself, or None.
        grace_secs: How long it had until that deadline.
        killed_at: When it was sent SIGKILL, or None.
        status: Its exit status, or None.
        cause: Why it was killed or how it was lost, or None.
        is_machine_lost: Whether its machine is gone, so that it cannot be restarted.
    """

    run: Run
    heard_at: float = 0.0
    worked_at: float = 0.0
    report: dict[str, Any] = dataclasses.field(default_factory=dict)
    stop_by: float | None = None
    grace_secs: float = 0.0
    killed_at: float | None = None
    status: int | None = None
    cause: str | None = None
    is_machine_lost: bool = False


class TaskState:
    """One task: its phase, and what is known of its last attempt.

    Args:
        task: The task.
        budget: Its restarts, or those of its gang.
        leads: Whether the task is the leader, which saves the checkpoints.

    Attributes:
        last: Its last attempt; before the first, an attempt numbered -1.
        start_at: When the task is to be started, if it waits.
        is_released: Whether the job goes on without the task, however it ends.
        has_trained: Whether a run has reported a training, or where one saves.
        hidden_warnings: How many deprecation warnings all its runs have hidden.
    """

    def __init__(self, task: Task, budget: Budget, leads: bool = False) -> None:
        self.task, self.budget, self._leads = task, budget, leads
        self._phase = TaskPhase.WAITING
        self.last = Attempt(Run(task=task, attempt=-1))
        self.start_at = 0.0
        self.is_released = self.has_trained = False
        self.hidden_warnings = 0

    # The transitions.

    @property
    def phase(self) -> TaskPhase:
        """The present phase."""
        return self._phase

    def start(self, now: float) -> Run:
        """Record that the next run starts now, and return it."""
        self._move(Cause.START)
        run = Run(task=self.task, attempt=self.last.run.attempt + 1)
        self.last = Attempt(run, heard_at=now, worked_at=now)
        return run

    def hear(self, report: dict[str, Any], now: float) -> None:
        """Record a report of the current run; an empty one is a mere sign of life."""
        if self._phase is TaskPhase.STARTING:
            self._move(Cause.SIGN_OF_LIFE)
        last = self.last
        last.report.update(report)
        last.heard_at = last.worked_at = now
        self.hidden_warnings += report.get("hidden", 0)
        if not report.keys().isdisjoint(_SIGNS_OF_TRAINING):
            self.has_trained = True

    def work(self, now: float) -> None:
        """Record that the task uses the CPU, although it sends no reports."""
        self.last.worked_at = now

    def stop(self, now: float, grace_secs: float) -> None:
        """Record that the task is to end by itself within so many seconds."""
        self._move(Cause.TERMINATE)
        self.last.stop_by, self.last.grace_secs = now + grace_secs, grace_secs

    def kill(self, now: float, cause: str | None = None) -> None:
        """Record that the task is sent SIGKILL, and why, if that explains its end."""
        self._move(Cause.KILL)
        self.last.killed_at, self.last.cause = now, cause

    def end(
        self, status: int, cause: str | None = None, is_machine_lost: bool = False
    ) -> None:
        """Record the end of the current run; see `task.Ended`."""
        last = self.last
        last.status, last.is_machine_lost = status, is_machine_lost
        # The silence of a task explains more than the signal that then killed it.
        last.cause = last.cause or cause
        if self.is_released:
            self._move(Cause.RELEASE)
        elif status == 0 and not self._unfinished and not self.is_server:
            self._move(Cause.SUCCESS)
        else:
            self._move(Cause.FAILURE)

    def restart(self, at: float) -> None:
        """Record that the task, which has ended, is to be started again."""
        self._move(Cause.RESTART)
        self.start_at = at

    def release(self) -> None:
        """Record that the job goes on without the task; its end then has no meaning."""
        self.is_released = True
        if not self.is_alive:
            self._move(Cause.RELEASE)

    def wait_longer(self, secs: float) -> None:
        """Ignore a time in which the supervisor itself was not running."""
        last = self.last
        last.heard_at += secs
        last.worked_at += secs
        if last.stop_by is not None:
            last.stop_by += secs
        if last.killed_at is not None:
            last.killed_at += secs

    def _move(self, cause: Cause) -> None:
        following = TRANSITIONS.get((self._phase, cause))
        if following is None:
            raise RuntimeError(f"{self.task} is {self._phase.value}: no {cause.name}")
        self._phase = following

    # Facts.

    @property
    def is_alive(self) -> bool:
        """Whether its process has been started and has not ended."""
        return self._phase in ALIVE

    @property
    def is_server(self) -> bool:
        """Whether the task is a parameter server."""
        return self.task.type == TaskType.PS

    @property
    def report(self) -> dict[str, Any]:
        """Everything that the last run has reported, by key."""
        return self.last.report

    @property
    def step(self) -> int | None:
        """The last step that the last run reported, or None."""
        # That of an evaluator is that of the checkpoint that it evaluated last.
        evaluated = self.report.get("metrics", {}).get("global_step")
        step = self.report.get("step", evaluated)
        return None if step is None else int(step)

    @property
    def is_done(self) -> bool:
        """Whether it has succeeded, or is a released parameter server."""
        is_served = self.is_server and self._phase is TaskPhase.RELEASED
        return is_served or self._phase is TaskPhase.SUCCEEDED

    @property
    def has_ended_its_trainings(self) -> bool:
        """Whether its last run has ended all trainings that it began, if any."""
        return self.report.get("unfinished") == []

    @property
    def _unfinished(self) -> list[str]:
        """The folders whose training the last run of the leader has not finished.

        The other tasks may leave early, because the leader saves what they train.
        """
        return self.report.get("unfinished", []) if self._leads else []

    @property
    def failure(self) -> Failure:
        """Why its last run failed."""
        return Failure(
            status=self.last.status or 0,
            error=tuple(self.report.get("error", ())),
            step=self.step,
            is_machine_lost=self.last.is_machine_lost,
        )

    def how_it_ended(self) -> str:
        """Return a short description of how the last run ended, for the user."""
        status, failure = self.last.status, self.failure
        if self.last.cause:
            return self.last.cause
        if status == -signal.SIGTERM and self.last.stop_by is None:
            return "was killed by SIGTERM, which this launcher did not send"
        if status is not None and status < 0:
            known = {each.value: each.name for each in signal.Signals}
            return f"was killed by {known.get(-status, f'signal {-status}')}"
        if status == 0 and self._unfinished:
            of = " and ".join(map(repr, filter(None, self._unfinished)))
            return (
                f"exited with status 0 before its training{of and f' in {of}'} had "
                "finished (does the program catch an error, or exit early? let the "
                "error propagate, or exit with another status)"
            )
        if failure.is_stop:
            return f"was stopped by {STOPPED[failure.status]}"
        if failure.error_name and status:
            return f"ended with {failure.error_name} (exit status {status})"
        return f"ended with exit status {status}"


@dataclasses.dataclass
class JobState:
    """What the policies decide by: the state of each task, and of the job as a whole.

    Attributes:
        job: The job.
        tasks: The state of each task, in the order in which they are started.
        ending: Why the job has to stop, or None while it goes on.
        is_hurried: Whether it has to stop at once.
        trained_at: When all trainers were found to have ended well, or None.
        missing: What the last checkpoint lacks, or None.
        completed_at: When the last checkpoint was found as well, or None.
        unevaluated: The evaluator that was given up and the reason, or None.
    """

    job: Job
    tasks: Mapping[Task, TaskState]
    ending: Fail | None = None
    is_hurried: bool = False
    trained_at: float | None = None
    missing: str | None = None
    completed_at: float | None = None
    unevaluated: tuple[Task, str] | None = None

    @property
    def trainers(self) -> Sequence[TaskState]:
        """The tasks that train; the first one is the leader."""
        return [self.tasks[task] for task in self.job.trainers]

    @property
    def leader(self) -> TaskState:
        """The task that saves the checkpoints."""
        return self.tasks[self.job.trainers[0]]

    @property
    def alive(self) -> Sequence[TaskState]:
        """The tasks whose process runs."""
        return [state for state in self.tasks.values() if state.is_alive]

    @property
    def has_trained(self) -> bool:
        """Whether all trainers have ended well, or are not needed any more."""
        return all(state.phase in NOT_NEEDED for state in self.trainers)

    @property
    def is_led_to_the_end(self) -> bool:
        """Whether the leader has succeeded, and has reported the end of its training.

        If it has succeeded without that report, the program had other work to do.
        """
        leader = self.leader
        return leader.phase is TaskPhase.SUCCEEDED and "trained" in leader.report

    @property
    def leads_steps(self) -> bool:
        """Whether the leader applies the gradients of all trainers."""
        return "synchronous" in self.leader.report

    @property
    def is_over(self) -> bool:
        """Whether the outcome is known, and no task runs."""
        # In most cases the first task answers this, which counts at every event.
        if any(state.is_alive for state in self.tasks.values()):
            return False
        waits = any(it.phase is TaskPhase.WAITING for it in self.tasks.values())
        return self.ending is not None or (self.completed_at is not None and not waits)

    def gang(self, state: TaskState) -> Sequence[TaskState]:
        """Return the tasks that are restarted together with a task, and the task."""
        is_in_gang = self.job.is_gang and state.task in self.job.trainers
        return self.trainers if is_in_gang else [state]
