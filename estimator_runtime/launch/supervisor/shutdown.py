"""The shutdown of a job: its tasks end in an order in which nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

from estimator_runtime.config.role import TaskType
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Ended, Run, Tasks

if TYPE_CHECKING:
    from estimator_runtime.launch.terminal.console import Console

# Seconds for tasks that do not train. A ps has nothing to save, and an evaluator has
# finished its evaluation by then.
_OTHERS_SECS = 2.0
# A process is gone within this time after SIGKILL, and so is a remote actor on Ray.
_GONE_SECS = 15.0


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

    def clear(self, state: TaskState, gang: Sequence[TaskState], now: float) -> None:
        """End the tasks that are about to get new addresses; call it at each end.

        With every ps still running and trainers that train on their own, the leader can
        save the progress of all after the others have ended, and every ps stays until
        the leader has ended.

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
        are_there = all(each.is_running for each in [leader, *servers])
        if are_there and not self._is_gang:
            has_time = [leader, *servers]
            # A leader that needs the others to finish a step can still save the last
            # finished step.
            if self._leads_steps() or not any(each.is_running for each in others):
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
            if state.failure.is_stop or state.has_ended_its_trainings:
                # The others have taken the last step too, and may be saving it.
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
