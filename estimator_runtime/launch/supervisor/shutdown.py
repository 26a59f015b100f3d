"""The end of a job: its training is complete, or its tasks are shut down in order."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

from estimator_runtime.config.role import TaskType
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Ended, Run, Tasks

if TYPE_CHECKING:
    from estimator_runtime.launch.terminal.console import Console

# Seconds for tasks that do not train. A ps has nothing to save, and an evaluator has
# finished its evaluation by then.
_OTHERS_SECS = 2.0
# A process is gone within this time after SIGKILL, and so is a remote actor on Ray.
_GONE_SECS = 15.0
# A shared folder may show a file only some time after another machine has written it:
# an NFS client caches the contents of a folder for 30 to 60 s (acdirmin, acdirmax).
_SEEN_SECS = 70.0
# Seconds after which the user is told of that wait.
_NAMED_SECS = 5.0
# Seconds after which the user is told of an evaluator that still runs, and told again
# whenever twice that time has passed.
_LONG_SECS = 60.0


class Shutdown:
    """Ends the tasks of a job: the trainers first, while they can still save.

    With a ps, each trainer trains on its own and the leader ends last, so that its
    checkpoint includes the steps of all trainers. If the leader applies the gradients
    of all trainers (SyncReplicasOptimizer), it ends first instead: it cannot finish its
    step without the others, and they have nothing to save. The tasks of a gang stop
    together.

    Args:
        tasks: The back end's means to signal the tasks.
        states: The state of every task.
        trainers: The state of each task that trains; the first one is the leader.
        grace_secs: How long a trainer may take for its last step and checkpoint.
        console: Where to report tasks that are killed at their deadline.
        is_gang: Whether the trainers take each step together.

    Attributes:
        has_begun: Whether the whole job is being shut down.
    """

    def __init__(
        self,
        tasks: Tasks,
        states: Collection[TaskState],
        trainers: Sequence[TaskState],
        grace_secs: float,
        console: Console,
        is_gang: bool = False,
    ) -> None:
        self._tasks, self._states, self._trainers = tasks, states, trainers
        self._grace_secs, self._is_gang = grace_secs, is_gang
        self._console = console
        self.has_begun = self._leader_is_first = False

    def begin(self, now: float, politely: bool) -> None:
        """Begin to shut down all tasks.

        The trainers may save a checkpoint if that is to be done politely. If not, they
        are killed at once.
        """
        self.has_begun = True
        for state in self._states:
            state.restart_at = None
        self._leader_is_first = self._leads_steps()
        for state in self._first() if politely else self._trainers:
            if politely:
                self.terminate(state, now, self._grace_secs)
            elif state.is_running:
                self.kill(state, now)
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Send SIGTERM to the tasks that are next: the leader, then the other types."""
        leader, *others = self._trainers
        if leader.is_running and any(state.failure.is_nan for state in others):
            self.kill(leader, now)  # its checkpoint would have the NaN too
        if self._leader_is_first and not leader.is_running:
            for state in others:
                self.terminate(state, now)
        if any(state.is_running for state in others):
            return
        if leader.is_running:
            if leader.killed_at is None:
                self.terminate(leader, now, self._grace_secs)
            return
        for state in self._states:
            self.terminate(state, now)

    def expect(self, state: TaskState, now: float) -> None:
        """Set the deadline of a trainer that saves and ends without a signal from here.

        That is a trainer that stops together with another one.
        """
        is_trainer = state in self._trainers
        if is_trainer and state.is_running and state.kill_at is None:
            secs = self._grace_secs
            state.kill_at, state.given_secs = now + secs, secs

    def make_way(self, now: float) -> None:
        """Stop the trainers in order, as all tasks are about to lose their addresses.

        Trainers whose turn is later get SIGTERM from `clear`, each time one has ended.
        """
        if self.has_begun:
            return
        first = [state for state in self._first() if state.is_running]
        for state in first or self._trainers:
            self.terminate(state, now, self._grace_secs)

    def clear(self, state: TaskState, gang: Sequence[TaskState], now: float) -> None:
        """End the tasks that are about to get new addresses; call it at each end.

        With every ps still running and trainers that train on their own, the leader can
        save the progress of all after the others have ended. The others get time only
        if they have been sent SIGTERM. Then the leader gets its own time, and every ps
        stays until the leader has ended. Trainers that take each step together stop
        together, if one of them was told to stop.

        Args:
            state: The task that has ended.
            gang: All tasks that get new addresses.
            now: The time.
        """
        if state.task.type == TaskType.EVALUATOR:
            return  # no task waits for it, and tasks that save must not be disturbed
        leader, *others = self._trainers
        servers = [each for each in gang if each.task.type == TaskType.PS]
        has_time: Sequence[TaskState] = []
        if self._is_gang and state.failure.is_stop:
            has_time = self._trainers
            for each in has_time:
                self.expect(each, now)
        elif (
            leader.is_running
            and not self._is_gang
            and all(each.is_running for each in servers)
        ):
            if self._leads_steps():
                # The leader needs the others to finish a step. If its SIGTERM comes too
                # late for that, it can still save the last finished step.
                told = others if leader.kill_at is not None else []
                is_next = True
            else:
                told = [each for each in others if each.kill_at is not None]
                is_next = not any(each.is_running for each in others)
            has_time = [leader, *servers, *told]
            if is_next:
                self.terminate(leader, now, self._grace_secs)
        for each in gang:
            if each.is_running and each not in has_time:
                self.kill(each, now)

    def end_gang(self, state: TaskState, gang: Sequence[TaskState], now: float) -> None:
        """End the tasks that are restarted together with one that has ended."""
        if state.is_displaced:
            self.clear(state, gang, now)
            return
        for each in filter(lambda each: each.is_running, gang):
            if state.failure.is_stop:
                self.expect(each, now)
            else:
                # It waits for the task that is gone, and would not react to SIGTERM.
                self.kill(each, now)

    def terminate(
        self, state: TaskState, now: float, secs: float = _OTHERS_SECS
    ) -> None:
        """Send SIGTERM to a task that runs, once, and give it some time to end."""
        if state.is_running and state.kill_at is None:
            self._tasks.signal(cast(Run, state.run), signal.SIGTERM)
            state.kill_at, state.given_secs = now + secs, secs

    def hurry(self, now: float) -> None:
        """Move the deadline of every task to now."""
        for state in self._states:
            state.kill_at, state.given_secs = now, None

    def kill_overdue(self, now: float) -> None:
        """Kill the tasks whose deadline has passed."""
        for state in self._states:
            is_overdue = state.kill_at is not None and now >= state.kill_at
            if not (state.is_running and is_overdue) or state.killed_at is not None:
                continue
            if state.given_secs is not None:
                within = f"within {state.given_secs:g} s"
                self._console.say(f"{state.task} did not end {within}: killing it")
            self.kill(state, now)

    def immortal(self, now: float) -> list[Ended]:
        """Return an end for each task that has not ended long after SIGKILL.

        Such a task hangs in the kernel, or the component that reports its end hangs.
        """
        cause, status = "did not end after SIGKILL", -int(signal.SIGKILL)
        return [
            Ended(run=cast(Run, state.run), status=status, cause=cause)
            for state in self._states
            if state.is_running
            and state.killed_at is not None
            and now - state.killed_at >= _GONE_SECS
        ]

    def kill(self, state: TaskState, now: float) -> None:
        """Send SIGKILL to a task that runs; further calls do nothing."""
        if state.killed_at is None:
            state.killed_at = now
            self._tasks.signal(cast(Run, state.run), signal.SIGKILL)

    def _leads_steps(self) -> bool:
        """Return whether the leader applies the gradients of all trainers."""
        leader = self._trainers[0]
        return leader.is_running and "synchronous" in leader.report

    def _first(self) -> Sequence[TaskState]:
        """Return the trainers that have to stop before the others."""
        leader, *others = self._trainers
        if self._is_gang:
            return self._trainers
        return [leader] if self._leads_steps() else others


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
        self._seen_by: float | None = None
        self._is_wait_named = False
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

    def call_off_restart(self, state: TaskState, now: float) -> None:
        """Do not restart a gang if its leader was done before it could be killed."""
        if state is self._leader and state.has_ended_well and self._has_trained:
            state.restart_at = None
            self._dismiss(state, self._trainers, now)

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
        for state in self._states:
            if state.task.type == TaskType.PS:
                self._shutdown.terminate(state, now)
        return None

    def _missing(self) -> str | None:
        """Return what is known to be missing in the checkpoints, or None."""
        expected = self._leader.report.get("trained")
        if expected is None:
            return None
        _, step, problem = self._record.scan()
        if problem is not None or (step is not None and step >= expected):
            return None
        has = "there is no checkpoint" if step is None else f"the newest has {step}"
        return f"{self._leader.task} has saved step {expected}, but {has}"

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
