"""Heartbeats: tasks that report nothing for too long are named, and then killed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from estimator_runtime.config.waits import IMPORT_SECS
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task

if TYPE_CHECKING:
    from estimator_runtime.launch.terminal.console import Console

# A task is named in the log when it has been silent for this fraction of the timeout.
_NAMED_AT = 1 / 3
# Freeing the memory of a large process takes long, above all on a busy machine.
_END_SECS = 120.0


class Heartbeats:
    """Names silent tasks in the log first, and kills them later; then they have failed.

    A task that sends no reports but uses the CPU is alive: it may be in a native call
    that holds the GIL for a long time. Such a task is named in the log, and never
    killed. A call that holds the GIL and only waits, for example for a file on a dead
    network drive, cannot be told from a hang.

    Args:
        timeout_secs: How long a task may be silent before it is killed.
        console: Where silent tasks are named.
        kill: Kills a task; called with its state and the time.
    """

    def __init__(
        self,
        timeout_secs: float,
        console: Console,
        kill: Callable[[TaskState, float], None],
    ) -> None:
        self._timeout_secs = timeout_secs
        self._console, self._kill = console, kill

    def check(self, states: Iterable[TaskState], now: float) -> None:
        """Name or kill those running tasks that have been silent for too long."""
        for state in states:
            if not state.is_running or state.killed_for is not None:
                continue  # the task has ended, or is about to
            timeout_secs = self._timeout_secs_of(state)
            # A task that is ending has nothing to compute, so use of the CPU is no sign
            # of progress.
            if state.report.get("ending"):
                silent = now - state.heard_at
            else:
                silent = now - state.worked_at
                self._log_long_work(state, now, timeout_secs)
            if silent >= timeout_secs:
                state.killed_for = f"gave no sign of life for {silent:.0f} s"
                self._console.say(f"{state.task} {state.killed_for}: killing it")
                self._kill(state, now)
            elif silent >= timeout_secs * _NAMED_AT and not state.is_named_silent:
                state.is_named_silent = True
                self._console.say(
                    f"{state.task} has given no sign of life for {silent:.0f} s (is it "
                    f"stopped, or cut off?); after {timeout_secs:g} s it counts as "
                    "failed"
                )

    def report_stall(self, task: Task, report: dict[str, Any]) -> None:
        """Log a training without steps that a task reports, and where its threads are.

        No task is killed for it: a first step, or waiting for other tasks, may take
        long.
        """
        if "stalled" not in report:
            return
        secs, stacks = report["stalled"]["secs"], report["stalled"]["stacks"]
        self._console.say(f"{task} has taken no step for {secs:.0f} s; it is at:")
        for number, places in enumerate(stacks):
            if number:
                self._console.say("and another of its threads at:")
            for place in places:
                self._console.say(f"  {place}")

    def _log_long_work(self, state: TaskState, now: float, timeout_secs: float) -> None:
        """Log a silent task that uses the CPU; again whenever its silence doubles."""
        unheard = now - state.heard_at
        is_due = unheard >= max(timeout_secs, 2 * state.named_working_secs)
        if is_due and state.worked_at > state.heard_at:
            state.named_working_secs = unheard
            self._console.say(
                f"{state.task} has not reported for {unheard:.0f} s, but uses the CPU: "
                "still waiting; a native call may be holding the GIL"
            )

    def _timeout_secs_of(self, state: TaskState) -> float:
        """Return how long a task may be silent: longer at its start and at its end.

        While TensorFlow is loaded, and after the program is done, no Python thread
        runs, so the thread that sends the reports does not run either.
        """
        if state.report.get("ending"):
            return max(self._timeout_secs, _END_SECS)
        if state.report.get("imported"):
            return self._timeout_secs
        return max(self._timeout_secs, IMPORT_SECS)
