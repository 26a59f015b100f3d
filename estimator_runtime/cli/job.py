"""Launches the job of `estimator-runtime run --workers ...`, and waits for its end.

A back end cannot replace a machine that is lost, so the command starts the job again on
those that are left. The job goes on from its newest checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from estimator_runtime.config.role import TaskType
from estimator_runtime.errors import EstimatorRuntimeError, LaunchError, UsageError
from estimator_runtime.output import tensorboard
from estimator_runtime.signals.inbox import NOTICES, SignalInbox, StopRequests

if TYPE_CHECKING:
    from estimator_runtime.launch import Backend, Job, JobHandle, Outcome
    from estimator_runtime.launch.terminal.console import Console

_POLL_SECS = 0.5
# The options that are fields of a `Job`. `render` has some of them.
_OF_JOB = (
    *("max_restarts", "refill_restarts_secs", "heartbeat_timeout_secs"),
    *("evaluation_timeout_secs", "log_dir"),
)


def launch(options: argparse.Namespace) -> int:
    """Run the program as a cluster, wait for its end, and return the exit status.

    Raises:
        UsageError: If the options of `run` define no valid job; see `job_of`.
        ConfigError: If the job cannot be started.
    """
    from estimator_runtime.launch import get_backend
    from estimator_runtime.launch.terminal.console import Console

    job = job_of(options)
    console = Console(as_json=options.log_format == "json")
    backend = get_backend(options.backend, console=console, **_backend_options(options))
    wait = functools.partial(_wait, port=options.tensorboard, console=console)
    starter = JobStarter(job, backend, wait, console.say)
    # The first Ctrl-C, SIGTERM or notice stops the job gracefully, another one at once.
    with contextlib.closing(SignalInbox(starter.stop)):
        try:
            outcome = starter.run()
        except StoppedBeforeStart as stopped:
            [number] = stopped.args
            name = signal.Signals(number).name
            console.conclude(f"stopped by {name} before the start", is_failure=True)
            return exit_status_of(number)
        except LaunchError as error:
            console.conclude(f"error: {error}", is_failure=True)
            return 1
        console.conclude(str(outcome), is_failure=bool(outcome.exit_status))
        return outcome.exit_status


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


def _wait(handle: JobHandle, port: int | str | None, console: Console) -> Outcome:
    """Wait for the end of a job, and start TensorBoard once its folder is known."""
    while not handle.has_ended(_POLL_SECS):
        tensorboard.start_if_requested(handle.model_dir(), console.say)
    if port is not None and not tensorboard.has_started():
        console.say(
            "TensorBoard was not started: no task has said in time which its model "
            "directory is, as tf.estimator.train_and_evaluate does"
        )
    return handle.wait()


def _backend_options(options: argparse.Namespace) -> dict[str, Any]:
    if options.backend == "local":
        return {
            "warm": not options.cold,
            "private_network": bool(options.private_network),
            "gpus_per_worker": options.gpus_per_worker,
        }
    if options.backend != "ray":
        return {}
    return {
        "address": options.ray_address or "auto",
        "placement": options.placement or "spread",
        "placement_timeout_secs": options.placement_timeout_secs,
        "working_dir": options.working_dir,
    }


def job_of(options: argparse.Namespace) -> Job:
    """Return the job that the options of `run` or `render` define.

    Raises:
        UsageError: If no task would train, or if the script is not in the folder that
            is copied to the nodes.
        ConfigError: If a value is invalid.
    """
    from estimator_runtime.launch import Job, Resources

    replicas = {
        TaskType.CHIEF: 0 if options.no_chief else 1,
        TaskType.WORKER: options.workers or 0,
        TaskType.PS: options.ps or 0,
        TaskType.EVALUATOR: int(bool(options.evaluator)),
    }
    if options.no_chief and not options.workers:
        raise UsageError(
            "--no-chief without workers leaves nobody to train; add --workers N, or "
            "leave out --no-chief"
        )
    trainer = Resources(
        **_known(cpus=options.cpus_per_worker, gpus=options.gpus_per_worker)
    )
    resources = {
        TaskType.CHIEF: trainer,
        TaskType.WORKER: trainer,
        TaskType.PS: Resources(**_known(cpus=options.cpus_per_ps)),
        TaskType.EVALUATOR: Resources(cpus=trainer.cpus),
    }
    program, *arguments = options.program
    working_dir = getattr(options, "working_dir", None)
    if working_dir is not None and not options.is_module:
        program = _in_copy(program, working_dir)
    command = (*(["-m"] if options.is_module else []), "--", program, *arguments)
    given = _known(**{name: getattr(options, name, None) for name in _OF_JOB})
    return Job(command=command, replicas=replicas, resources=resources, **given)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _in_copy(script: str, folder: str) -> str:
    """Return the path of a script relative to the folder that is copied."""
    path = os.path.relpath(os.path.realpath(script), os.path.realpath(folder))
    if path.startswith(os.pardir + os.sep):
        raise UsageError(
            f"script {script!r} is not in --working-dir {folder!r}, which is copied to "
            "the nodes; name a folder that has it"
        )
    return path


def exit_status_of(number: int) -> int:
    """Return the exit status of a job that a signal ended; notices count as SIGTERM."""
    return 128 + (signal.SIGTERM if number in NOTICES else number)
