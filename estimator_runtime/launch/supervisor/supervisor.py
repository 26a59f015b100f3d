"""Watches the tasks of a job: what failed, the verdict, and an end in order.

It knows tasks, not how they are started: see `task.Tasks`. It decides by the events in
its queue, and by the time.
"""

import collections
import contextlib
import queue
import signal
import time

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.completion import Completion
from estimator_runtime.launch.events import Events
from estimator_runtime.launch.heartbeats import Heartbeats
from estimator_runtime.launch.outcome import EVALUATION_FAILED, Outcome
from estimator_runtime.launch.record import Record
from estimator_runtime.launch.restart_scalars import RestartScalars
from estimator_runtime.launch.shutdown import Shutdown
from estimator_runtime.launch.starts import Starts
from estimator_runtime.launch.status import Status
from estimator_runtime.launch.task import (
    Ended,
    Leaving,
    Lost,
    Output,
    Refused,
    Reported,
    Working,
)
from estimator_runtime.launch.watch import Watch
from estimator_runtime.role import TaskType

_TICK_SECS = 0.2


class Supervisor:
    """Runs one job from its start to its end.

    Attributes:
        state: "starting", "running", "stopping", "succeeded" or "failed".
    """

    def __init__(self, job, tasks, screen, clock=time.monotonic):
        self._job, self._tasks, self._screen, self._clock = job, tasks, screen, clock
        self._console = screen.console
        self._events = Events(self._console.is_behind)
        self._watches = {
            task: Watch(
                task,
                job.max_restarts,
                job.refill_restarts_secs,
                leads=task == job.trainers[0],
            )
            for task in job.tasks
        }
        trainers = [self._watches[task] for task in job.trainers]
        self._leader = trainers[0]
        everyone = list(self._watches.values())
        self._starts = Starts(job, tasks, everyone)
        logs = [watch.log for watch in everyone]
        self._record = Record(logs, job.log_dir, self._console.say, job.trainers[0])
        self._shutdown = Shutdown(
            tasks, everyone, trainers, job.grace_secs, self._console, job.is_gang
        )
        self._completion = Completion(
            job, everyone, trainers, self._record, self._shutdown, self._console
        )
        self._heartbeats = Heartbeats(
            job.heartbeat_timeout_secs, self._console, self._shutdown
        )
        self._restart_scalars = RestartScalars(everyone, self._record, self._console)
        screen.open(everyone, Status(everyone, self._record))
        # Each a status and a reason; other threads add to it.
        self._requests: collections.deque[tuple[int, str]] = collections.deque()
        self._ending: Outcome | None = None  # once it is decided
        # Of an evaluator that is given up: its watch, and why.
        self._unevaluated: tuple[Watch, str] | None = None
        self._last_tick = clock()
        self.state = "starting"

    @property
    def model_dir(self):
        """The model directory, once a task has said which it is, or None."""
        return self._record.model_dir

    def cancel(self, exit_status, reason):
        """Stop the job in order; a second time at once. May be called by any thread."""
        self._requests.append((exit_status, reason))

    def run(self):
        """Start all tasks, and stay until the last is gone.

        Returns:
            The `Outcome`.

        Raises:
            LaunchError: If no task can be started.
        """
        try:
            self._tasks.open(self._events, lambda: bool(self._requests))
            if self._job.log_dir is not None:
                self._stop_for(self._record.open_logs(self._job.log_dir))
            # It starts those due, unless the job was cancelled meanwhile.
            self._tick(self._clock())
            while not self._is_over():
                self._step()
            self._restart_scalars.look(is_end=True)
            outcome = self._conclude()
            self.state = "failed" if outcome.exit_status else "succeeded"
            return outcome
        except BaseException:
            self.state = "failed"
            raise
        finally:
            # From the last to the first, whatever becomes of any.
            with contextlib.ExitStack() as closing:
                closing.callback(self._console.flush)
                for watch in self._watches.values():
                    closing.callback(watch.log.close)
                closing.callback(self._screen.close)
                closing.callback(self._tasks.close)

    # Events and time.

    def _step(self):
        try:
            event = self._events.get(_TICK_SECS)
        except queue.Empty:
            self._tick(self._clock())
            return
        if isinstance(event, Lost):
            self._lose_all(event.reason)
            return
        if isinstance(event, Refused):
            self._stop_for(event.reason)
            return
        if isinstance(event, Leaving):
            self._shutdown.make_way(self._clock())
            return
        watch = self._watches[event.run.task]
        if isinstance(event, Output):
            watch.log.write(event.line)
            self._screen.write(watch.task, event.line, event.is_error)
        elif event.run != watch.run or not watch.is_running:
            return  # of a run that has been replaced, or given up
        elif isinstance(event, Reported):
            now = self._clock()
            watch.hear(event.report, now)
            self._starts.credit(watch, event.report, now)
            if self._ending is None:
                self._heartbeats.tell_of_stall(watch.task, event.report)
                self._stop_for(self._record.hear(watch.run, event.report))
        elif isinstance(event, Working):
            watch.work(self._clock())
        elif isinstance(event, Ended):
            self._handle_end(watch, event)
        if self._clock() - self._last_tick > _TICK_SECS:
            self._tick(self._clock())

    def _tick(self, now):
        late = now - self._last_tick - 2 * _TICK_SECS
        self._last_tick = now
        if late > 1:
            # It was this process that was stopped, or starved: judge nobody by that.
            for watch in self._watches.values():
                watch.wait_longer(late)
        self._heed_cancel(now)
        self._shutdown.kill_overdue(now)
        self._restart_scalars.look()
        for end in self._shutdown.immortal(now):
            self._handle_end(self._watches[end.run.task], end)
        if self._ending is not None:
            return
        self._advance(now)
        if self._ending is not None:
            return
        self._heartbeats.check(self._watches.values(), now)
        self._screen.show(now)
        self._start_those_due(now)

    def _heed_cancel(self, now):
        while self._requests:
            exit_status, reason = self._requests.popleft()
            if self._ending is None:
                self._console.say(
                    f"{reason}: its tasks end one after the other, each within "
                    f"{self._job.grace_secs:g} s; asked once more, all end at once"
                )
                self._stop(self._record.outcome(exit_status, reason), politely=True)
            else:
                self._shutdown.hurry(now)

    def _start_those_due(self, now):
        try:
            self._starts.due(now)
        except LaunchError as error:
            self._stop_for(str(error))
            return
        if self.state == "starting" and self._starts.has_begun:
            self.state = "running"

    # Failures.

    def _lose_all(self, reason):
        # Whoever ended them all may have asked this process first.
        self._heed_cancel(self._clock())
        self._stop_for(reason)
        for watch in self._watches.values():
            if watch.is_running:
                watch.end(-int(signal.SIGKILL))

    def _handle_end(self, watch, event):
        watch.end(event.status, event.cause, event.is_displaced)
        # The same signal may have come to this process and, sooner, to its tasks.
        self._heed_cancel(self._clock())
        if self._ending is not None:
            self._shutdown.go_on(self._clock())
        elif self._starts.takes_along(watch):  # killed together with its gang
            if self._starts.is_anew:
                gang = self._starts.gang(watch)
                self._shutdown.clear(watch, gang, self._clock())
            else:
                self._completion.call_off_restart(watch, self._clock())
        elif not self._completion.goes_on_without(watch, self._clock()):
            self._restart_or_fail(watch)
        if self._ending is None:
            self._advance(self._clock())

    def _restart_or_fail(self, watch):
        refusal = watch.budget.refusal(watch.failure)
        refusal = refusal or self._completion.refusal(watch)
        if refusal and watch.task.type == TaskType.EVALUATOR:
            self._give_up(watch, refusal)
            return
        if refusal:
            self._fail(watch, refusal)
            return
        now = self._clock()
        delay = self._starts.plan(watch, now)
        self._record.restarts += 1
        gang = self._starts.gang(watch)
        whom = "it" if len(gang) == 1 else "all trainers"
        if watch.is_displaced:
            whom = "all, with new addresses,"
        when = f"in {delay:g} s" if delay else "now"
        self._console.say(
            f"{watch.task} {watch.how_it_ended()}: restarting {whom} {when} "
            f"({watch.budget.used} of {self._job.max_restarts}); the count resets "
            f"after {self._job.refill_restarts_secs:g} s of progress"
        )
        self._shutdown.end_gang(watch, gang, now)

    def _give_up(self, evaluator, why):
        """Go on without the evaluator; the outcome of the job says so at its end."""
        evaluator.is_dismissed = True
        reason = f"{evaluator.task} {evaluator.how_it_ended()}: {why}"
        self._unevaluated = evaluator, reason
        if not self._completion.is_seen:
            self._console.say(f"{reason}; the training goes on without it")

    # The end.

    def _advance(self, now):
        """Do what is next when all have trained."""
        problem = self._completion.advance(now)
        # The training is done then: what has failed is its evaluation.
        status = EVALUATION_FAILED if self._completion.is_seen else 1
        self._stop_for(problem, status)

    def _fail(self, watch, why):
        reason = f"{watch.task} {watch.how_it_ended()}: {why}"
        gang = self._starts.gang(watch)
        if watch.failure.is_stop:
            for each in gang:  # they stop at the same step, and one of them saves it
                self._shutdown.expect(each, self._clock())
        # Only a leader that is not held up by the failure can save anything of worth.
        is_apart = len(gang) == 1 and watch.task.type != TaskType.PS
        can_save = watch.failure.is_stop or (is_apart and not watch.failure.is_nan)
        politely = self._leader.is_running and can_save
        self._stop(self._record.outcome(1, reason, watch), politely)

    def _stop_for(self, problem, exit_status=1):
        if problem is not None and self._ending is None:
            self._stop(self._record.outcome(exit_status, problem), politely=False)

    def _stop(self, outcome, politely):
        self.state, self._ending = "stopping", outcome
        self._events.is_hurried = True
        self._shutdown.begin(self._clock(), politely)

    def _is_over(self):
        is_waiting = self._ending is None and (
            self._starts.is_waiting or not self._completion.is_seen
        )
        are_running = any(watch.is_running for watch in self._watches.values())
        return not is_waiting and not are_running

    def _conclude(self):
        if self._ending is None:
            path, step = self._record.checkpoint()
            where = f" at step {step}, in {path}" if path else ""
            if self._unevaluated is not None:
                evaluator, why = self._unevaluated
                reason = (
                    f"the training is done{where}, but its evaluation failed: {why}"
                )
                return self._record.outcome(EVALUATION_FAILED, reason, evaluator)
            return self._record.outcome(0, f"the job is done{where}")
        # What was saved while it stopped counts as well.
        is_nan = any(watch.failure.is_nan for watch in self._watches.values())
        return self._record.latest(self._ending, is_nan)
