"""Starts a job, and starts it again on the machines that are left if it loses one.

A back end cannot replace a machine that is lost. The job goes on from its newest
checkpoint.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable
from types import FrameType

from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.launch.backend import Backend, JobHandle
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import Outcome
from estimator_runtime.signals.inbox import NOTICES, StopRequests


class StoppedBeforeStart(BaseException):
    """A signal, whose number is the argument, has come before a job was started."""


class JobStarter:
    """Starts a job, and starts it again after each loss of a machine.

    It does so as often as a task may be restarted. The count begins again at 0 once the
    job has run for `Job.refill_restarts_secs` without a loss.

    Args:
        job: The job.
        backend: Runs it.
        wait: Waits for the end of a job that has been started.
        say: Shows a line to the user.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        job: Job,
        backend: Backend,
        wait: Callable[[JobHandle], Outcome],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._backend, self._wait = job, backend, wait
        self._say, self._clock = say, clock
        self._handle: JobHandle | None = None  # of the last start; None before it
        self._requests = StopRequests()
        self._stopped_by: int | None = None
        self._restarts = 0

    def stop(self, number: int, _frame: FrameType | None = None) -> None:
        """Handle a signal: stop the job gracefully, and at a second request at once.

        Raises:
            StoppedBeforeStart: If the job waits for free resources.
        """
        if not self._requests.take(number, self._clock()):
            return
        self._stopped_by = self._stopped_by or number
        if self._handle is None:
            raise StoppedBeforeStart(number)
        self._handle.cancel(exit_status_of(number), _stopped_by(number))

    def run(self) -> Outcome:
        """Start the job until it ends without the loss of a machine; return how.

        Raises:
            StoppedBeforeStart: If a signal comes before the first start.
            ConfigError, LaunchError: If the first start fails.
        """
        outcome, failed_start = self._run_once(), ""
        while outcome.is_machine_lost:
            lost = outcome.reason + failed_start
            if self._stopped_by is not None:
                return dataclasses.replace(
                    outcome,
                    exit_status=exit_status_of(self._stopped_by),
                    reason=f"{lost}; {_stopped_by(self._stopped_by)}",
                )
            if self._restarts == self._job.max_restarts:
                reason = f"{lost}; all restarts are used up ({self._restarts})"
                return dataclasses.replace(outcome, reason=reason)
            self._restarts += 1
            of = f"{self._restarts} of {self._job.max_restarts}"
            self._say(f"{lost}: starting the job again ({of})")
            try:
                outcome, failed_start = self._run_once(), ""
            except StoppedBeforeStart:
                continue
            except EstimatorRuntimeError as error:  # it may succeed the next time
                failed_start = f"; the job cannot be started again: {error}"
        return outcome

    def _run_once(self) -> Outcome:
        self._handle = None
        handle = self._handle = self._backend.submit(self._job)
        started_at = self._clock()
        if (number := self._stopped_by) is not None:  # since the start before
            handle.cancel(exit_status_of(number), _stopped_by(number))
        outcome = self._wait(handle)
        if self._clock() - started_at >= self._job.refill_restarts_secs:
            self._restarts = 0
        return outcome


def _stopped_by(number: int) -> str:
    return f"the job was stopped by {signal.Signals(number).name}"


def exit_status_of(number: int) -> int:
    """Return the exit status of a job that a signal ended; notices count as SIGTERM."""
    return 128 + (signal.SIGTERM if number in NOTICES else number)
