"""The supervisor of a job: watches its tasks, restarts them and decides the outcome.

The supervisor does not know how tasks are started: a back end does that, behind the
protocol `task.Tasks`. All decisions depend on the events in one queue and on the clock.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import queue
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from estimator_runtime.config.role import TaskType
from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import EVALUATION_FAILED, Outcome
from estimator_runtime.launch.supervisor.completion import Completion
from estimator_runtime.launch.supervisor.file_thread import FileThread
from estimator_runtime.launch.supervisor.heartbeats import Heartbeats
from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.restart_scalars import RestartScalars
from estimator_runtime.launch.supervisor.shutdown import Shutdown
from estimator_runtime.launch.supervisor.starts import Starts
from estimator_runtime.launch.supervisor.task_log import START_MARK
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import (
    Ended,
    Events,
    Lost,
    Output,
    Refused,
    Reported,
    Task,
    Tasks,
    Working,
)
from estimator_runtime.launch.terminal.job_status import JobMetrics, JobStatus, Status

if TYPE_CHECKING:
    from estimator_runtime.launch.job_file import JobFile
    from estimator_runtime.launch.terminal.views import Screen

_TICK_SECS = 0.2
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

    Attributes:
        state: "starting", "running", "stopping", "succeeded" or "failed".
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
        self._job, self._tasks, self._screen, self._clock = job, tasks, screen, clock
        self._tick_secs, self._job_file = tick_secs, job_file
        self._metrics = JobMetrics.of(job, os.environ)
        self._console = screen.console
        self._states: dict[Task, TaskState] = {
            task: TaskState(
                task,
                job.max_restarts,
                job.refill_restarts_secs,
                leads=task == job.trainers[0],
            )
            for task in job.tasks
        }
        trainers = [self._states[task] for task in job.trainers]
        self._leader = trainers[0]
        everyone = list(self._states.values())
        self._starts = Starts(job, tasks, everyone)
        logs = [state.log for state in everyone]
        self._record = Record(logs, job.log_dir, self._console.say, job.trainers[0])
        self._metrics_thread = FileThread("the file of --metrics", self._console.say)
        self._events = Events(
            lambda: self._console.is_behind() or self._record.log_files.is_behind()
        )
        self._shutdown = Shutdown(
            tasks, everyone, trainers, job.grace_secs, self._console, job.is_gang
        )
        self._completion = Completion(
            job, everyone, trainers, self._record, self._shutdown, self._console
        )
        self._heartbeats = Heartbeats(
            job.heartbeat_timeout_secs, self._console, self._shutdown.kill
        )
        self._restart_scalars = RestartScalars(everyone, self._record, self._console)
        self._status = Status(everyone, self._record)
        screen.open(everyone)
        # Requests to cancel, each an exit status and a reason; other threads append.
        self._requests: collections.deque[tuple[int, str]] = collections.deque()
        # Set once the job has to stop: the exit status, the reason, and the task that
        # has failed, if one has.
        self._ending: tuple[int, str, TaskState | None] | None = None
        self._is_hurried = False
        # The evaluator that is given up, and the reason.
        self._unevaluated: tuple[TaskState, str] | None = None
        self._last_tick = clock()
        self._has_checked_input = self._has_mentioned_evaluator = False
        self.state = "starting"

    @property
    def model_dir(self) -> str | None:
        """The model directory; None until a task has reported it."""
        return self._record.model_dir

    def cancel(self, exit_status: int, reason: str) -> None:
        """Stop the job in an orderly way; a second call kills all tasks at once.

        Any thread may call this method. The outcome has this exit status and reason.
        """
        self._requests.append((exit_status, reason))

    def run(self) -> Outcome:
        """Start all tasks, and return the outcome when the last one has ended.

        Raises:
            LaunchError: If no task can be started.
        """
        try:
            self._tasks.open(self._events, lambda: bool(self._requests))
            if self._job.log_dir is not None:
                self._stop_for(self._record.start_logs(self._job.log_dir))
            # Starts the tasks that are due, unless the job has been cancelled by now.
            self._tick(self._clock())
            while not self._is_over():
                self._step()
            update = functools.partial(self._restart_scalars.update, is_end=True)
            self._record.files.ask(update, None)
            now = self._clock()
            seen = self._status.now(now)
            self._publish(seen, now)
            outcome = self._with_lost_steps(self._conclude(seen))
            self.state = "failed" if outcome.exit_status else "succeeded"
            return outcome
        except BaseException:
            self.state = "failed"
            raise
        finally:
            # Callbacks run from the last to the first, even if one of them fails.
            with contextlib.ExitStack() as closing:
                if self._job_file is not None:
                    closing.callback(self._job_file.remove)
                closing.callback(self._console.flush)
                closing.callback(self._metrics_thread.close)
                closing.callback(self._record.close)
                closing.callback(self._screen.close)
                closing.callback(self._tasks.close)

    # Events and time.

    def _step(self) -> None:
        """Handle the next event, or only the passing of time if there is none."""
        try:
            event = self._events.get(self._tick_secs)
        except queue.Empty:
            self._tick(self._clock())
            return
        if isinstance(event, Lost):
            self._handle_loss(event.reason)
            return
        if isinstance(event, Refused):
            # The leader can save what has been trained before its folder was refused.
            politely = event.is_late and self._leader.is_running
            self._stop_for(event.reason, politely=politely)
            return
        state = self._states[event.run.task]
        if isinstance(event, Output):
            self._record.write(state.log, event.line)
            self._screen.write(state.task, event.line, event.is_error)
        elif event.run != state.run or not state.is_running:
            return  # the run has been replaced or given up
        elif isinstance(event, Reported):
            now = self._clock()
            state.hear(event.report, now)
            if "pid" in event.report:
                self._log_start(state, event.report["pid"])
            self._starts.credit(state, event.report, now)
            if self._ending is None:
                self._heartbeats.report_stall(state.task, event.report)
                if "input" in event.report:
                    self._warn_of_equal_input()
                if "model_dir" in event.report:
                    self._mention_missing_evaluator()
                self._stop_for(self._record.hear(state.run, event.report))
        elif isinstance(event, Working):
            state.work(self._clock())
        elif isinstance(event, Ended):
            self._handle_end(state, event)
        if self._clock() - self._last_tick > self._tick_secs:
            self._tick(self._clock())

    def _tick(self, now: float) -> None:
        """Do everything that depends on the time."""
        late = now - self._last_tick - 2 * _TICK_SECS
        self._last_tick = now
        if late > 1:
            # This process itself was stopped or starved of CPU. Do not count that time
            # against any task.
            for state in self._states.values():
                state.wait_longer(late)
        self._handle_cancels(now)
        self._shutdown.kill_overdue(now)
        self._record.files.ask(self._restart_scalars.update, None)
        record = self._record
        for files in (record.files, record.log_files, self._metrics_thread):
            files.check(now)
        self._stop_for(self._record.problem())
        for end in self._shutdown.immortal(now):
            self._handle_end(self._states[end.run.task], end)
        self._show(now)
        if self._ending is not None:
            return
        self._advance(now)
        if self._ending is not None:
            return
        self._heartbeats.check(self._states.values(), now)
        self._start_those_due(now)

    def _show(self, now: float) -> None:
        """Show and publish the progress of the job, if it is time."""
        seen = self._status.poll(now)
        if seen is not None:
            self._publish(seen, now)

    def _publish(self, seen: JobStatus, now: float) -> None:
        self._screen.show(seen, now)
        if self._job_file is not None:
            self._job_file.write(seen)
        if self._metrics is not None:
            write = functools.partial(self._metrics.write, seen)
            self._metrics_thread.ask(write, None)

    def _log_start(self, state: TaskState, pid: int) -> None:
        """Log, on the screen and in the task's log, the process of a new run."""
        attempt = state.run.attempt if state.run is not None else 0
        again = f" (restart {attempt})" if attempt else ""
        line = f"{START_MARK}{state.task} started{again}, pid {pid}"
        self._record.write(state.log, line)
        self._console.say(f"{state.task} started{again}, pid {pid}")

    def _handle_cancels(self, now: float) -> None:
        while self._requests:
            exit_status, reason = self._requests.popleft()
            if self._ending is None:
                self._console.say(
                    f"{reason}: its tasks end one after the other, each within "
                    f"{self._job.grace_secs:g} s; a second request kills all at once"
                )
                self._stop((exit_status, reason, None), politely=True)
            else:
                self._is_hurried = True
                self._shutdown.hurry(now)

    def _start_those_due(self, now: float) -> None:
        try:
            self._starts.due(now)
        except LaunchError as error:
            self._stop_for(str(error))
            return
        if self.state == "starting" and self._starts.has_begun:
            self.state = "running"

    def _warn_of_equal_input(self) -> None:
        """Warn of trainers that read the same batches, once all have reported."""
        trainers = [self._states[task] for task in self._job.trainers]
        if self._has_checked_input or any("input" not in it.report for it in trainers):
            return
        self._has_checked_input = True
        readers = collections.defaultdict(list)
        for state in trainers:
            readers[state.report["input"]].append(str(state.task))
        readers.pop(None, None)
        for *names, last in readers.values():
            if names:
                self._console.say(
                    f"WARNING: {', '.join(names)} and {last} read the same batches in "
                    "the same order. Give each its own part: import estimator_runtime; "
                    "def input_fn(config): ... dataset = estimator_runtime.shard("
                    "dataset, config). The Estimator calls input_fn with its RunConfig",
                    level="warning",
                )

    def _mention_missing_evaluator(self) -> None:
        """Log, once in a job, that nobody does what the EvalSpec of a task asks for.

        Only train_and_evaluate reports a model directory, and it takes an EvalSpec.
        """
        has_evaluator = any(it.type == TaskType.EVALUATOR for it in self._job.tasks)
        if not (has_evaluator or self._has_mentioned_evaluator):
            self._has_mentioned_evaluator = True
            self._console.say("no task evaluates or exports; add --evaluator for that")

    # Failures.

    def _handle_loss(self, reason: str) -> None:
        """Stop the job after the back end has lost all tasks."""
        # Whatever ended all tasks may first have asked this process to stop.
        self._handle_cancels(self._clock())
        self._stop_for(reason)
        for state in self._states.values():
            if state.is_running:
                state.end(-int(signal.SIGKILL))

    def _handle_end(self, state: TaskState, event: Ended) -> None:
        """Decide what follows the end of a run: a restart, a shutdown, or nothing."""
        state.end(event.status, event.cause, event.is_displaced)
        # Its last lines are in its log before a next run begins.
        self._record.log_files.ask(lambda: None, None)
        # One signal may have been sent to this process and to its tasks, and the tasks
        # may have handled it first.
        self._handle_cancels(self._clock())
        if self._ending is not None:
            self._shutdown.go_on(self._clock())
        elif self._starts.takes_along(state):  # it was killed together with its gang
            if self._starts.is_anew:
                gang = self._starts.gang(state)
                self._shutdown.clear(state, gang, self._clock())
            else:
                self._call_off_restart(state)
        elif not self._completion.goes_on_without(state, self._clock()):
            self._restart_or_fail(state)
        if self._ending is None:
            self._advance(self._clock())

    def _call_off_restart(self, state: TaskState) -> None:
        """Do not restart a gang if its leader was done before it could be killed."""
        failed = self._completion.call_off_restart(state, self._clock())
        if failed is not None:
            self._fail(failed, self._completion.refusal(failed) or "")

    def _restart_or_fail(self, state: TaskState) -> None:
        """Plan the restart of a failed task; without one, fail or go on without it."""
        refusal = state.budget.refusal(state.failure)
        refusal = refusal or self._completion.refusal(state)
        if refusal and state.task.type == TaskType.EVALUATOR:
            self._give_up(state, refusal)
            return
        if refusal:
            self._fail(state, refusal)
            return
        now = self._clock()
        delay = self._starts.plan(state, now)
        self._record.restarts += 1
        gang = self._starts.gang(state)
        whom = "it" if len(gang) == 1 else "all trainers"
        if state.is_displaced:
            whom = "all, with new addresses,"
        when = f"in {delay:g} s" if delay else "now"
        self._console.say(
            f"{state.task} {state.how_it_ended()}: restarting {whom} {when} "
            f"({state.budget.used} of {self._job.max_restarts}); the count starts "
            f"again at 0 after {self._job.refill_restarts_secs:g} s of new steps"
        )
        self._shutdown.end_gang(state, gang, now)

    def _give_up(self, evaluator: TaskState, why: str) -> None:
        """Go on without the evaluator; the outcome of the job reports it."""
        evaluator.is_dismissed = True
        reason = f"{evaluator.task} {evaluator.how_it_ended()}: {why}"
        self._unevaluated = evaluator, reason
        if not self._completion.is_seen:
            self._console.say(f"{reason}; the training goes on without it")

    # The end.

    def _advance(self, now: float) -> None:
        """Take the next step towards the end of the job, if all trainers are done."""
        problem = self._completion.advance(now)
        # Once the training is complete, only its evaluation can have failed.
        status = EVALUATION_FAILED if self._completion.is_seen else 1
        self._stop_for(problem, status)

    def _fail(self, state: TaskState, why: str) -> None:
        """Stop the job because a task has failed for good."""
        reason = f"{state.task} {state.how_it_ended()}: {why}"
        gang = self._starts.gang(state)
        # All tasks of a gang take the same last step, and one of them saves it.
        has_trained = self._job.is_gang and state.has_ended_its_trainings
        is_after_last_step = state.failure.is_stop or has_trained
        if is_after_last_step:
            for each in gang:
                self._shutdown.expect(each, self._clock())
        # Waiting for a checkpoint is useful only if the failure neither blocks the
        # leader nor spoils what it would save.
        is_apart = len(gang) == 1 and state.task.type != TaskType.PS
        can_save = is_after_last_step or (is_apart and not state.failure.is_nan)
        politely = self._leader.is_running and can_save
        self._stop((1, reason, state), politely)

    def _stop_for(
        self, problem: str | None, exit_status: int = 1, politely: bool = False
    ) -> None:
        """Stop the job if there is a problem and it is not stopping already."""
        if problem is not None and self._ending is None:
            self._stop((exit_status, problem, None), politely)

    def _stop(self, ending: tuple[int, str, TaskState | None], politely: bool) -> None:
        self.state, self._ending = "stopping", ending
        self._events.is_hurried = True
        self._shutdown.begin(self._clock(), politely)

    def _is_over(self) -> bool:
        # In most cases the first task answers this, which counts at every event.
        if any(state.is_running for state in self._states.values()):
            return False
        return self._ending is not None or (
            self._completion.is_seen and not self._starts.is_waiting
        )

    def _with_lost_steps(self, outcome: Outcome) -> Outcome:
        """Name the steps that are in no checkpoint, if they are known for certain."""
        folders, reached = self._leader.folders, 0
        if not folders:
            return outcome
        for state in self._states.values():
            if "step" in state.report:
                folders |= state.step_folders
                reached = max(reached, state.report["step"])
        return self._record.with_lost_steps(outcome, reached, folders)

    def _conclude(self, seen: JobStatus) -> Outcome:
        """Return the final outcome of the job, whose last progress is `seen`."""
        if self._ending is None:
            path, step = self._record.checkpoint()
            where = f" at step {step}, in {path}" if path else ""
            if self._unevaluated is not None:
                evaluator, why = self._unevaluated
                reason = (
                    f"the training is done{where}, but its evaluation failed: {why}"
                )
                return self._record.outcome(EVALUATION_FAILED, reason, evaluator)
            metrics = [
                f"; evaluated {task.evaluation(most=2)}"
                for task in seen.tasks
                if task.metrics
            ]
            reason = f"the job is done{where}{''.join(metrics)}"
            if not any(state.has_trained for state in self._states.values()):
                reason += (
                    "; but no task has reported a training: does the program call "
                    "tf.estimator.train_and_evaluate?"
                )
            return self._record.outcome(0, reason)
        is_nan = any(state.failure.is_nan for state in self._states.values())
        until = self._clock() + (_NAN_SECS if is_nan else _LAST_SECS)

        def goes_on() -> bool:
            return not self._requests and self._clock() < until

        return self._record.outcome(
            *self._ending, is_nan, None if self._is_hurried else goes_on
        )
