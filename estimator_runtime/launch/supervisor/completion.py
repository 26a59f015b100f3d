"""The completion of a job: all have trained, the last step is saved, the others end."""

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
# Seconds after which the user is told of that wait.
_NAMED_SECS = 5.0
# Seconds after which the user is told of an evaluator that still runs, and told again
# whenever twice that time has passed.
_LONG_SECS = 60.0


class Completion:
    """Detects that a training is complete, and then ends the tasks that served it."""

    def __init__(
        self,
        job: Job,
        watches: Collection[TaskState],
        trainers: Sequence[TaskState],
        record: Record,
        shutdown: Shutdown,
        console: Console,
    ) -> None:
        """Prepare to watch a job that has not started.

        Args:
            job: The job.
            watches: The state of every task.
            trainers: The state of each task that trains; the first one is the leader.
            record: The record of the job.
            shutdown: The shutdown of the job.
            console: Where to report what the job waits for.
        """
        self._console = console
        self._watches, self._trainers, self._record = watches, trainers, record
        self._leader, self._shutdown = trainers[0], shutdown
        self._is_gang = job.is_gang
        self._timeout_secs = job.evaluation_timeout_secs
        self._seen_by: float | None = None
        self._is_wait_named = False
        self._seen_at: float | None = None
        self._long_secs = _LONG_SECS

    @property
    def is_seen(self) -> bool:
        """Whether the training has been found complete."""
        return self._seen_at is not None

    def goes_on_without(self, watch: TaskState, now: float) -> bool:
        """Return whether the job can do without a task that has ended.

        If the leader is done, no task would save what is trained after that. So the
        tasks that cannot train without the ended one are killed, and not restarted.

        Args:
            watch: The state of the ended task, for which no restart is planned.
            now: The time.
        """
        is_server = watch.task.type == TaskType.PS
        if not is_server and (watch.has_ended_well or watch.is_dismissed):
            return True
        # A ps that ends too early makes all other tasks hang, even if it ends with
        # status 0.
        if not self._leader.has_succeeded:
            return False
        if is_server:
            self._dismiss(watch, self._trainers, now)
            return True
        # The user has to see an error of the program in any case. And if the leader has
        # not reported the end of its training, the task may have had other work to do.
        is_let_go = (
            watch in self._trainers
            and self._has_trained
            and not watch.failure.is_of_program
        )
        if is_let_go:
            self._dismiss(watch, self._trainers if self._is_gang else [watch], now)
        return is_let_go

    def call_off_restart(self, watch: TaskState, now: float) -> None:
        """Do not restart a gang if its leader was done before it could be killed.

        Args:
            watch: The state of a task that has ended, and for which a restart is
                planned.
            now: The time.
        """
        if watch is self._leader and watch.has_ended_well and self._has_trained:
            watch.restart_at = None
            self._dismiss(watch, self._trainers, now)

    def refusal(self, watch: TaskState) -> str | None:
        """Return why a task must not be restarted, whatever its budget, or None.

        A gang is restarted as a whole, which includes a leader that is done already.
        """
        is_over = self._leader.has_succeeded and self._has_trained
        if is_over and self._is_gang and watch in self._trainers:
            return f"{self._leader.task} is done, and would train again with it"
        return None

    @property
    def _has_trained(self) -> bool:
        """Whether the leader has reported the end of its training."""
        return "trained" in self._leader.report

    def _dismiss(
        self, watch: TaskState, trainers: Sequence[TaskState], now: float
    ) -> None:
        """Kill those of the trainers that are not done, and do not restart them.

        Args:
            watch: The task that has ended, which the log names as the reason.
            trainers: The trainers.
            now: The time.
        """
        left = [
            each for each in trainers if not (each.has_succeeded or each.is_dismissed)
        ]
        for each in left:
            each.restart_at, each.is_dismissed = None, True
            if each.is_running:
                self._shutdown.kill(each, now)
        others = ", ".join(str(each.task) for each in left if each is not watch)
        if left:
            self._console.say(
                f"{watch.task} {watch.how_it_ended()} when the last checkpoint was "
                f"saved: {others or 'it'} cannot go on, and need not"
            )

    def advance(self, now: float) -> str | None:
        """Take the next step towards the end of the job, if all trainers are done.

        Args:
            now: The time.

        Returns:
            What went wrong, or None if nothing has.
        """
        if self._seen_at is not None:
            return self._wait_for_others(now - self._seen_at)
        if not all(watch.has_succeeded or watch.has_left for watch in self._trainers):
            return None
        missing = self._missing()
        if missing is not None:
            self._seen_by = self._seen_by or now + _SEEN_SECS
            left = self._seen_by - now
            if left <= _SEEN_SECS - _NAMED_SECS and not self._is_wait_named:
                self._is_wait_named = True
                self._console.say(
                    f"{missing}: waiting {left:.0f} s at most until its folder shows it"
                )
            return missing if left <= 0 else None
        self._seen_at = now
        for watch in self._watches:
            if watch.task.type == TaskType.PS:
                self._shutdown.release(watch, now)
        return None

    def _missing(self) -> str | None:
        """Return what is known to be missing in the checkpoints, or None."""
        expected = self._leader.report.get("trained")
        if expected is None or self._record.why_unknown() is not None:
            return None
        _, step = self._record.checkpoint()
        if step is not None and step >= expected:
            return None
        has = "there is no checkpoint" if step is None else f"the newest has {step}"
        return f"{self._leader.task} has saved step {expected}, but {has}"

    def _wait_for_others(self, secs: float) -> str | None:
        """Log which tasks still run after the training, and return what is wrong.

        A task that hangs as a whole is silent, and is killed for its silence.

        Args:
            secs: Seconds since the training was found complete.

        Returns:
            The problem if the tasks have run into the timeout, else None.
        """
        waited = ", ".join(
            str(watch.task)
            for watch in self._watches
            if watch.is_running or watch.restart_at is not None
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
