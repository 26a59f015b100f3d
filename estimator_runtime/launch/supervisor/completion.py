"""The completion of a job: when its training is complete, and who is still awaited."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from estimator_runtime.config.role import TaskType
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.shutdown import Shutdown
from estimator_runtime.launch.supervisor.task_state import TaskState

if TYPE_CHECKING:
    from estimator_runtime.launch.terminal.console import Console

# A shared folder may show a file only some time after another machine has written it:
# an NFS client caches the contents of a folder for 30 to 60 s (acdirmin, acdirmax).
_SEEN_SECS = 70.0
# A disk that hangs, or a file server that is gone, may answer again.
_ANSWER_SECS = 600.0
# Seconds after which the user is told of such a wait.
_NAMED_SECS = 5.0
# Seconds after which the user is told of an evaluator that still runs, and told again
# whenever twice that time has passed.
_LONG_SECS = 60.0


class Completion:
    """Detects that a training is complete, and then ends the tasks that served it.

    Args:
        job: The job.
        states: The state of every task.
        trainers: The state of each task that trains; the first one is the leader.
        record: The record of the job.
        shutdown: The shutdown of the job.
        console: Where to report what the job waits for.
    """

    def __init__(
        self,
        job: Job,
        states: Collection[TaskState],
        trainers: Sequence[TaskState],
        record: Record,
        shutdown: Shutdown,
        console: Console,
    ) -> None:
        self._console = console
        self._states, self._trainers, self._record = states, trainers, record
        self._leader, self._shutdown = trainers[0], shutdown
        self._is_gang = job.is_gang
        self._timeout_secs = job.evaluation_timeout_secs
        # The seconds of the waits for the last checkpoint, by whether its disk hung.
        self._waited, self._waited_at = {False: 0.0, True: 0.0}, float("inf")
        self._named_waits: set[bool] = set()
        self._is_doubted = False
        self._seen_at: float | None = None
        self._long_secs = _LONG_SECS

    @property
    def is_seen(self) -> bool:
        """Whether the training has been found complete."""
        return self._seen_at is not None

    def goes_on_without(self, state: TaskState, now: float) -> bool:
        """Return whether the job can do without a task that has ended for good.

        If the leader is done, no task would save what is trained after that. So the
        tasks that cannot train without the ended one are killed, and not restarted.
        """
        is_server = state.task.type == TaskType.PS
        if not is_server and (state.has_ended_well or state.is_dismissed):
            return True
        if is_server and state.status == 0:
            self._doubt_cluster(state)
        # A ps that ends too early makes all other tasks hang, even if it ends with
        # status 0.
        if not self._leader.has_succeeded:
            return False
        if is_server:
            self._dismiss(state, self._trainers, now)
            return True
        # The user has to see an error of the program in any case. And if the leader has
        # not reported the end of its training, the task may have had other work to do.
        is_let_go = (
            state in self._trainers
            and self._has_trained
            and not state.failure.is_of_program
        )
        if is_let_go:
            self._dismiss(state, self._trainers if self._is_gang else [state], now)
        return is_let_go

    def _doubt_cluster(self, server: TaskState) -> None:
        """Warn, once, that a ps which ends by itself may not be one."""
        if self._record.model_dir is None and not self._is_doubted:
            self._is_doubted = True
            self._console.say(
                f"WARNING: {server.task} has ended, and no task has named a model "
                "directory: does the program use TF_CONFIG? If not, each task trains "
                "alone",
                level="warning",
            )

    def call_off_restart(self, state: TaskState, now: float) -> TaskState | None:
        """Do not restart a gang if its leader was done before it could be killed.

        Returns:
            The trainer whose own error fails the job nevertheless, or None.
        """
        if not (state is self._leader and state.has_ended_well and self._has_trained):
            return None
        state.restart_at = None
        for each in self._trainers:
            if each.status and each.failure.is_of_program:
                each.restart_at = None
                return each
        self._dismiss(state, self._trainers, now)
        return None

    def refusal(self, state: TaskState) -> str | None:
        """Return why a task must not be restarted, whatever its budget, or None.

        A gang is restarted as a whole, which includes a leader that is done already.
        """
        is_over = self._leader.has_succeeded and self._has_trained
        if is_over and self._is_gang and state in self._trainers:
            return f"{self._leader.task} is done, and would train again with it"
        return None

    @property
    def _has_trained(self) -> bool:
        """Whether the leader has reported the end of its training."""
        return "trained" in self._leader.report

    def _dismiss(
        self, state: TaskState, trainers: Sequence[TaskState], now: float
    ) -> None:
        """Kill those of the trainers that are not done, and do not restart them.

        The log names the task that has ended as the reason.
        """
        left = [
            each for each in trainers if not (each.has_succeeded or each.is_dismissed)
        ]
        for each in left:
            each.restart_at, each.is_dismissed = None, True
            if each.is_running:
                self._shutdown.kill(each, now)
        others = ", ".join(str(each.task) for each in left if each is not state)
        if left:
            self._console.say(
                f"{state.task} {state.how_it_ended()} when the last checkpoint was "
                f"saved: no further steps of {others or 'it'} are needed"
            )

    def advance(self, now: float) -> str | None:
        """Take the next step towards the end of the job, if all trainers are done.

        Returns:
            What went wrong, or None if nothing has.
        """
        if self._seen_at is not None:
            return self._wait_for_others(now - self._seen_at)
        if not all(state.has_succeeded or state.has_left for state in self._trainers):
            return None
        missing, is_hung = self._missing()
        if missing is not None:
            return self._wait_for_checkpoint(missing, is_hung, now)
        self._seen_at = now
        for state in self._states:
            if state.task.type == TaskType.PS:
                state.is_dismissed = True
                self._shutdown.terminate(state, now)
        return None

    def _wait_for_checkpoint(
        self, missing: str, is_hung: bool, now: float
    ) -> str | None:
        """Return what is missing if it has been waited for long enough, else None."""
        self._waited[is_hung] += max(0.0, now - self._waited_at)
        self._waited_at = now
        waited = self._waited[is_hung]
        left = (_ANSWER_SECS if is_hung else _SEEN_SECS) - waited
        if waited >= _NAMED_SECS and is_hung not in self._named_waits:
            self._named_waits.add(is_hung)
            until = "its disk answers" if is_hung else "its folder shows it"
            self._console.say(f"{missing}: waiting {left:.0f} s at most until {until}")
        return missing if left <= 0 else None

    def _missing(self) -> tuple[str | None, bool]:
        """Return what is known to be missing in the checkpoints, or None.

        The second value is whether the disk does not answer.
        """
        expected = self._leader.report.get("trained")
        if expected is None:
            return None, False
        found = self._record.scan()
        if found is None:
            has = f"{self._record.model_dir or 'its disk'} hangs"
        else:
            _, step, problem = found
            if problem is not None or (step is not None and step >= expected):
                return None, False
            has = "there is no checkpoint" if step is None else f"the newest has {step}"
        missing = f"{self._leader.task} has saved step {expected}, but {has}"
        return missing, found is None

    def _wait_for_others(self, secs: float) -> str | None:
        """Log which tasks still run so long after the training was found complete.

        A task that hangs as a whole is silent, and is killed for its silence.

        Returns:
            The problem if the tasks have run into the timeout, else None.
        """
        waited = ", ".join(
            str(state.task)
            for state in self._states
            if state.is_running or state.restart_at is not None
        )
        if self._timeout_secs is not None and secs >= self._timeout_secs:
            return (
                f"the training is done, but {waited} did not end within "
                f"{self._timeout_secs:g} s after it; --evaluation-timeout is that limit"
            )
        if waited and secs >= self._long_secs:
            self._long_secs = 2 * secs
            self._console.say(
                f"the training has been done for {secs:.0f} s: waiting for {waited}"
            )
        return None
