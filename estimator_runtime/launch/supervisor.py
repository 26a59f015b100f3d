"""Watches the tasks of a job: what failed, the verdict, and an end in order.

It knows tasks, not how they are started: see `task.Tasks`. It decides by the events in
its queue, and by the time.
"""

import queue
import time

from estimator_runtime.errors import LaunchError
from estimator_runtime.launch.events import Events
from estimator_runtime.launch.heartbeats import Heartbeats
from estimator_runtime.launch.outcome import Outcome
from estimator_runtime.launch.record import Record
from estimator_runtime.launch.shutdown import Shutdown
from estimator_runtime.launch.starts import Starts
from estimator_runtime.launch.status import Status
from estimator_runtime.launch.task import Ended, Lost, Output, Refused, Reported
from estimator_runtime.launch.watch import Watch
from estimator_runtime.role import TaskType

_TICK_SECS = 0.2


class Supervisor:
    """Runs one job from its start to its end.

    Attributes:
        state: "starting", "running", "stopping", "succeeded" or "failed".
    """

    def __init__(self, job, tasks, console, clock=time.monotonic):
        self._job, self._tasks, self._console, self._clock = job, tasks, console, clock
        self._events = Events(console.is_behind)
        self._watches = {task: Watch(task, job.max_restarts) for task in job.tasks}
        self._trainers = [self._watches[task] for task in job.trainers]
        everyone = list(self._watches.values())
        self._starts = Starts(job, tasks, everyone)
        logs = [watch.log for watch in everyone]
        self._record = Record(logs, job.log_dir, console.say, job.trainers[0])
        self._shutdown = Shutdown(
            tasks, everyone, self._trainers, job.grace_secs, job.is_gang
        )
        self._heartbeats = Heartbeats(
            job.heartbeat_timeout_secs, console, self._shutdown
        )
        self._status = Status(everyone, self._record)
        self._cancelled: tuple[int, str] | None = None  # set by another thread
        self._ending: Outcome | None = None  # once it is decided
        self._release_by: float | None = None
        self._last_tick = clock()
        self.state = "starting"

    def cancel(self, exit_status, reason):
        """Stop the job in order; a second time at once. May be called by any thread."""
        self._cancelled = exit_status, reason

    def run(self):
        """Start all tasks, and stay until the last is gone.

        Returns:
            The `Outcome`.

        Raises:
            LaunchError: If no task can be started.
        """
        self._console.introduce([str(task) for task in self._watches])
        try:
            self._tasks.open(self._events, lambda: self._cancelled is not None)
            if self._job.log_dir is not None:
                self._stop_for(self._record.open_logs(self._job.log_dir))
            # It starts those due, unless the job was cancelled meanwhile.
            self._tick(self._clock())
            while not self._is_over():
                self._step()
            outcome = self._conclude()
            self.state = "failed" if outcome.exit_status else "succeeded"
            return outcome
        except BaseException:
            self.state = "failed"
            raise
        finally:
            self._console.status("")
            self._tasks.close()
            for watch in self._watches.values():
                watch.log.close()
            self._console.flush()

    # Events and time.

    def _step(self):
        try:
            event = self._events.get(_TICK_SECS)
        except queue.Empty:
            self._tick(self._clock())
            return
        if isinstance(event, Lost):
            raise LaunchError(event.reason)
        if isinstance(event, Refused):
            self._stop_for(event.reason)
            return
        watch = self._watches[event.run.task]
        if isinstance(event, Output):
            watch.log.write(event.line)
            self._console.write(str(watch.task), event.line, event.is_error)
        elif event.run != watch.run:
            return  # of a run that has been replaced
        elif isinstance(event, Reported):
            watch.hear(event.report, self._clock())
            if "model_dir" in event.report and self._ending is None:
                path = event.report["model_dir"]
                self._stop_for(self._record.take_model_dir(watch.task, path))
            if "checkpoint_dir" in event.report and self._ending is None:
                path = event.report["checkpoint_dir"]
                self._stop_for(self._record.take_checkpoint_dir(watch.task, path))
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
                watch.heard_at += late
        if self._cancelled:
            (exit_status, reason), self._cancelled = self._cancelled, None
            if self._ending is None:
                self._stop(self._record.outcome(exit_status, reason), politely=True)
            else:
                self._shutdown.hurry(now)
        self._shutdown.kill_overdue(now)
        if self._ending is not None:
            return
        if self._release_by is not None and now >= self._release_by:
            waited = ", ".join(str(watch.task) for watch in self._running())
            limit = self._job.evaluation_timeout_secs
            self._stop_for(
                f"the training is done, but {waited} did not end within {limit:g} s "
                "after it"
            )
            return
        self._heartbeats.check(self._running(), now)
        self._console.status(self._status.line(now))
        self._start_those_due(now)

    def _start_those_due(self, now):
        try:
            self._starts.due(now)
        except LaunchError as error:
            self._stop_for(str(error))
            return
        if self.state == "starting" and self._starts.has_begun:
            self.state = "running"

    # Failures.

    def _handle_end(self, watch, event):
        watch.end(event.status, event.cause, event.is_displaced)
        if self._ending is not None:
            self._shutdown.go_on(self._clock())
        elif watch.restart_at is not None:  # killed together with its gang
            if self._starts.is_anew:
                gang = self._starts.gang(watch)
                self._shutdown.clear(watch, gang, self._clock())
        elif watch.task.type == TaskType.PS and self._has_trained():
            return
        elif event.status == 0 and watch.task.type != TaskType.PS:
            if self._release_by is None and self._has_trained():
                self._release()
        else:
            # A ps that leaves too early, however well, makes all the others hang.
            self._restart_or_fail(watch)

    def _restart_or_fail(self, watch):
        refusal = watch.budget.refusal(watch.failure)
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
            f"({watch.budget.used} of {self._job.max_restarts})"
        )
        if watch.is_displaced:
            self._shutdown.clear(watch, gang, now)
            return
        for each in filter(lambda each: each.is_running, gang):
            if watch.failure.is_stop:
                self._shutdown.expect(each, now)
            else:
                # They wait for the one that is gone, and would not hear SIGTERM.
                self._shutdown.kill(each)

    # The end.

    def _has_trained(self):
        return all(watch.has_succeeded for watch in self._trainers)

    def _release(self):
        """Let the others end, once all trainers have ended well."""
        leader = self._trainers[0]
        expected = leader.report.get("trained")
        _, step = self._record.checkpoint()
        is_known = expected is not None and self._record.why_unknown() is None
        if is_known and (step is None or step < expected):
            has = "there is no checkpoint" if step is None else f"the newest has {step}"
            self._fail(leader, f"it has saved step {expected}, but {has}")
            return
        now = self._clock()
        self._release_by = now + self._job.evaluation_timeout_secs
        for watch in self._running():
            if watch.task.type == TaskType.PS:
                self._shutdown.release(watch, now)

    def _fail(self, watch, why):
        reason = f"{watch.task} {watch.how_it_ended()}: {why}"
        gang = self._starts.gang(watch)
        if watch.failure.is_stop:
            for each in gang:  # they stop at the same step, and one of them saves it
                self._shutdown.expect(each, self._clock())
        # Only a leader that is not held up by the failure can save anything.
        politely = self._trainers[0].is_running and (
            watch.failure.is_stop or (len(gang) == 1 and watch.task.type != TaskType.PS)
        )
        self._stop(self._record.outcome(1, reason, watch), politely)

    def _stop_for(self, problem):
        if problem is not None and self._ending is None:
            self._stop(self._record.outcome(1, problem), politely=False)

    def _stop(self, outcome, politely):
        self.state, self._ending = "stopping", outcome
        self._events.is_hurried = True
        self._shutdown.begin(self._clock(), politely)

    def _running(self):
        return [watch for watch in self._watches.values() if watch.is_running]

    def _is_over(self):
        waiting = self._ending is None and self._starts.is_waiting
        return not self._running() and not waiting

    def _conclude(self):
        if self._ending is None:
            path, step = self._record.checkpoint()
            where = f" at step {step}, in {path}" if path else ""
            return self._record.outcome(0, f"the job is done{where}")
        # What was saved while it stopped counts as well.
        return self._record.latest(self._ending)
