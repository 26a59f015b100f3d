"""The supervisor of a job: watches its tasks, and executes what the policies decide.

It does not know how tasks are started: a back end does that, behind the protocol
`task.Tasks`. All decisions depend on the events in one queue and on the clock.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import math
import os
import queue
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import EVALUATION_FAILED, Outcome
from estimator_runtime.launch.supervisor import actions, policies
from estimator_runtime.launch.supervisor.actions import Action, Fail
from estimator_runtime.launch.supervisor.file_worker import FileWorker
from estimator_runtime.launch.supervisor.log import START_MARK
from estimator_runtime.launch.supervisor.machine import JobState, TaskState
from estimator_runtime.launch.supervisor.record import Record
from estimator_runtime.launch.supervisor.restart_policy import Budget
from estimator_runtime.launch.supervisor.status import Status
from estimator_runtime.launch.task import (
    Ended,
    Event,
    Events,
    Lost,
    Output,
    Reported,
    Task,
    Tasks,
    Working,
)
from estimator_runtime.launch.terminal.job_status import JobMetrics, JobStatus
from estimator_runtime.reporting import JOB_VARIABLE

if TYPE_CHECKING:
    from estimator_runtime.launch.job_file import JobFile
    from estimator_runtime.launch.terminal.screen import Screen

_TICK_SECS = 0.2
# How often the progress is shown.
_PUBLISH_SECS = 1.0
# How long the last look at the checkpoints of a job that has failed may take.
_LAST_SECS = 15.0
# The same if it has to find one without NaN, which takes minutes for a large one.
_NAN_SECS = 3600.0


class Supervisor:
    """Runs one job from its start to its end.

    Args:
        job: The job.
        tasks: The back end's means to start and signal the tasks.
        screen: Displays the tasks' lines and the progress of the job.
        clock: Returns the time in seconds.
        tick_secs: How long to wait for an event before the passing of time is handled.
        job_file: Where the progress is written for `estimator-runtime ps`, or None.
    """

    def __init__(
        self,
        job: Job,
        tasks: Tasks,
        screen: Screen,
        clock: Callable[[], float] = time.monotonic,
        tick_secs: float = _TICK_SECS,
        job_file: JobFile | None = None,
    ) -> None:
        self._tasks, self._screen, self._clock = tasks, screen, clock
        self._tick_secs, self._job_file = tick_secs, job_file
        self._console = screen.console
        self._state = JobState(job, _initial(job))
        self._record = Record(job, self._console.say)
        self._addresses: Mapping[Task, str] = {}
        self._metrics = JobMetrics.of(job, os.environ)
        self._metrics_file = FileWorker("the file of --metrics", self._console.say)
        self._status = Status(self._state, self._record)
        self._events = Events()
        self._id = uuid.uuid4().hex
        self._console.introduce([str(task) for task in job.tasks])
        # Requests to cancel, each an exit status and a reason; other threads append.
        self._requests: collections.deque[tuple[int, str]] = collections.deque()
        self._is_cancelled = False
        self._said: set[object] = set()  # the keys of lines that are told only once
        self._last_tick, self._published_at = clock(), -math.inf

    def model_dir(self) -> str | None:
        """Return the model directory; None until a task has reported it."""
        return self._record.model_dir

    def cancel(
        self, exit_status: int = 1, reason: str = "the job was cancelled"
    ) -> None:
        """Stop the job, from any thread; see `JobHandle.cancel`."""
        self._requests.append((exit_status, reason))

    def run(self) -> Outcome:
        """Start all tasks, and return the outcome when the last one has ended.

        Raises:
            LaunchError: If no task can be started.
        """
        try:
            self._fail_for(self._record.problem())  # of the log folder
            if self._state.ending is None:
                # Before the import of TensorFlow, which takes seconds.
                self._publish(self._clock())
                self._tasks.open(self._events, lambda: bool(self._requests))
                self._addresses = self._tasks.place(self._state.job.addressed)
            # Starts the tasks that are due, unless the job has been cancelled by now.
            self._tick(self._clock())
            while not self._state.is_over:
                self._step()
            return self._conclude()
        finally:
            # Callbacks run from the last to the first, even if one of them fails.
            with contextlib.ExitStack() as closing:
                if self._job_file is not None:
                    closing.callback(self._job_file.remove)
                closing.callback(self._console.flush)
                closing.callback(self._metrics_file.close)
                closing.callback(self._record.close)
                closing.callback(self._screen.close)
                closing.callback(self._tasks.close)

    # Events and time.

    def _step(self) -> None:
        """Handle the next event, or only the passing of time if there is none."""
        try:
            self._handle(self._events.get(self._tick_secs))
        except queue.Empty:
            self._tick(self._clock())
            return
        if self._clock() - self._last_tick > self._tick_secs:
            self._tick(self._clock())

    def _handle(self, event: Event) -> None:
        if isinstance(event, Lost):
            self._handle_loss(event.reason)
            return
        state = self._state.tasks[event.run.task]
        if isinstance(event, Output):
            self._record.logs.write(state.task, event.line)
            self._screen.write(state.task, event.line, event.is_error)
        elif event.run != state.last.run or not state.is_alive:
            return  # the run has been replaced or given up
        elif isinstance(event, Reported):
            self._handle_report(state, event)
        elif isinstance(event, Working):
            state.work(self._clock())
        else:
            self._handle_end(state, event)

    def _handle_report(self, state: TaskState, event: Reported) -> None:
        report, now = event.report, self._clock()
        state.hear(report, now)
        if "pid" in report:
            self._log_start(state, report["pid"])
        self._credit(state, now)
        if self._state.ending is None:
            self._record.hear(event.run, report)
            self._execute(policies.on_report(self._state, state, report))
            self._fail_for(self._record.problem())

    def _handle_end(self, state: TaskState, event: Ended) -> None:
        state.end(event.status, event.cause, event.is_machine_lost)
        # One signal may have been sent to this process and to its tasks, and the tasks
        # may have handled it first.
        self._handle_cancels()
        if self._state.ending is None:
            self._execute(policies.on_end(self._state, state, self._clock()))
        self._ask_policies(self._clock())

    def _handle_loss(self, reason: str) -> None:
        """Stop the job after the back end has lost all tasks."""
        # Whatever ended all tasks may first have asked this process to stop.
        self._handle_cancels()
        self._fail(Fail(reason))
        for state in self._state.alive:
            state.end(-int(signal.SIGKILL))

    def _tick(self, now: float) -> None:
        """Do everything that depends on the time."""
        late = now - self._last_tick - 2 * self._tick_secs
        self._last_tick = now
        if late > 1:
            # This process itself was stopped or starved of CPU. Do not count that time
            # against any task.
            for state in self._state.tasks.values():
                state.wait_longer(late)
        self._handle_cancels()
        self._record.check(now)
        self._metrics_file.check(now)
        self._fail_for(self._record.problem())
        if now - self._published_at >= _PUBLISH_SECS:
            self._publish(now)
        self._ask_policies(now)

    def _ask_policies(self, now: float) -> None:
        """Execute what the policies decide now."""
        self._look_for_last_checkpoint(now)
        for policy in policies.IN_TRAINING:
            if self._state.ending is None:
                self._execute(policy(self._state, now))
        if self._state.ending is not None:
            for policy in policies.IN_STOP:
                self._execute(policy(self._state, now))

    def _look_for_last_checkpoint(self, now: float) -> None:
        """Record what the last checkpoint lacks once all trainers are done."""
        job = self._state
        if job.ending or job.completed_at is not None or not job.has_trained:
            return
        job.trained_at = now if job.trained_at is None else job.trained_at
        job.missing = policies.missing_in(job, self._record.newest())
        if job.missing is None:
            job.completed_at = now

    def _publish(self, now: float) -> JobStatus:
        """Show the progress of the job, and return it."""
        self._published_at, seen = now, self._status.now(now)
        self._screen.show(seen, now)
        if self._job_file is not None:
            self._job_file.write(seen)
        if self._metrics is not None:
            write = functools.partial(self._metrics.write, seen)
            self._metrics_file.put("progress", write)
        return seen

    def _log_start(self, state: TaskState, pid: int) -> None:
        """Log, on the screen and in the task's log, the process of a new run."""
        attempt = state.last.run.attempt
        again = f" (restart {attempt})" if attempt else ""
        line = f"{state.task} started{again}, pid {pid}"
        self._record.logs.write(state.task, f"{START_MARK}{line}")
        self._console.say(line)

    def _credit(self, state: TaskState, now: float) -> None:
        """Credit the progress that a task reports to its budget of restarts.

        What the leader reports is progress of each ps too, which takes no steps.
        """
        step = state.step
        if step is None:
            return
        folder = state.report.get("model_dir") or state.report.get("checkpoint_dir")
        credited = [state]
        if state is self._state.leader:
            credited += [it for it in self._state.tasks.values() if it.is_server]
        for each in credited:
            each.budget.advance(folder, step, now)

    def _handle_cancels(self) -> None:
        while self._requests:
            exit_status, reason = self._requests.popleft()
            if self._is_cancelled:
                self._state.is_hurried = True
                continue
            # The first one hurries nobody, also if the tasks end already.
            self._is_cancelled = True
            self._console.say(
                f"{reason}: its tasks end one after the other, each within "
                f"{self._state.job.grace_secs:g} s; a second request kills all at once"
            )
            self._fail(Fail(reason, exit_status, lets_save=True))

    # Actions.

    def _execute(self, found: Iterable[Action]) -> None:
        # A policy decides by one and the same state, so it has to end first.
        for action in list(found):
            match action:
                case actions.Say():
                    self._say(action)
                case Fail():
                    self._fail(action)
                case _:
                    self._execute_for(self._state.tasks[action.task], action)

    def _execute_for(self, state: TaskState, action: Action) -> None:
        now = self._clock()
        match action:
            case actions.Start():
                self._record.logs.of[state.task].start_run()
                run, job = state.start(now), self._state.job
                environ = job.environ_of(state.task, self._addresses)
                self._tasks.start(run, {**environ, JOB_VARIABLE: self._id})
            case actions.Restart():
                if action.is_charged:
                    state.budget.spend(state.failure)
                    self._record.restarts += 1
                state.restart(action.at)
            case actions.Terminate():
                state.stop(now, action.grace_secs)
                if action.is_signalled:
                    self._tasks.signal(state.last.run, signal.SIGTERM)
            case actions.Kill():
                state.kill(now, action.cause)
                self._tasks.signal(state.last.run, signal.SIGKILL)
            case actions.GiveUp():
                run, status = state.last.run, -int(signal.SIGKILL)
                cause = "did not end after SIGKILL"
                self._events.put(Ended(run=run, status=status, cause=cause))
            case actions.Release():
                state.release()
                if action.reason is not None:
                    self._state.unevaluated = state.task, action.reason

    def _say(self, action: actions.Say) -> None:
        if action.key is None or action.key not in self._said:
            self._said.add(action.key)
            self._console.say(action.line)

    def _fail_for(self, problem: str | None) -> None:
        if problem is not None:
            self._fail(Fail(problem))

    def _fail(self, action: Fail) -> None:
        """Stop the job, unless it is stopping already."""
        if self._state.ending is None:
            self._state.ending = action
            self._execute(policies.stop_in_order(self._state, self._clock()))

    # The end.

    def _conclude(self) -> Outcome:
        """Return the final outcome of the job."""
        now = self._clock()
        seen = self._publish(now)
        ending = self._state.ending
        if ending is None:
            return self._record.outcome(*self._verdict(seen))
        states = self._state.tasks
        is_nan = any(state.failure.is_nan for state in states.values())
        until = now + (_NAN_SECS if is_nan else _LAST_SECS)

        def goes_on() -> bool:
            return not self._requests and self._clock() < until

        outcome = self._record.outcome(
            ending.exit_status,
            ending.reason,
            ending.task,
            is_nan=is_nan,
            goes_on=None if self._state.is_hurried else goes_on,
        )
        is_machine_lost = bool(ending.task and states[ending.task].last.is_machine_lost)
        return dataclasses.replace(outcome, is_machine_lost=is_machine_lost)

    def _verdict(self, seen: JobStatus) -> tuple[int, str, Task | None]:
        """Return exit status, reason and failed task of a job that was not stopped."""
        newest = self._record.newest()
        where = ""
        if newest is not None and newest.path is not None:
            where = f" at step {newest.step}, in {newest.path}"
        if self._state.unevaluated is not None:
            task, why = self._state.unevaluated
            reason = f"the training is done{where}, but its evaluation failed: {why}"
            return EVALUATION_FAILED, reason, task
        metrics = [
            f"; evaluated {task.evaluation(most=2)}"
            for task in seen.tasks
            if task.metrics
        ]
        count = seen.restarts
        restarts = f", after {count} restart{'s' * (count > 1)}" if count else ""
        reason = f"the job is done{where}{restarts}{''.join(metrics)}"
        if not any(state.has_trained for state in self._state.tasks.values()):
            reason += (
                "; but no task has reported a training: does the program call "
                "tf.estimator.train_and_evaluate?"
            )
        return 0, reason, None


def _initial(job: Job) -> dict[Task, TaskState]:
    """Return the state of each task before its start; a gang shares one budget."""

    def budget() -> Budget:
        return Budget(job.max_restarts, job.refill_restarts_secs)

    shared = budget()
    return {
        task: TaskState(
            task,
            shared if job.is_gang and task in job.trainers else budget(),
            leads=task == job.trainers[0],
        )
        for task in job.tasks
    }
