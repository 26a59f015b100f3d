"""A job that has lost a machine is started again, and ends with what it has to say."""

import signal

import pytest

from estimator_runtime.errors import ConfigError, LaunchError
from estimator_runtime.launch import Job, Outcome
from estimator_runtime.launch.starter import JobStarter, StoppedBeforeStart

LOST = Outcome(exit_status=1, reason="chief lost its node", is_machine_lost=True)
DONE = Outcome(exit_status=0, reason="the job is done")
STOPPED = Outcome(exit_status=143, reason="the job was stopped by SIGTERM")


class Handle:
    """A job that has an outcome as soon as somebody waits for it."""

    def __init__(self, outcome):
        self.outcome, self.cancelled = outcome, []

    def cancel(self, exit_status, reason):
        self.cancelled.append((exit_status, reason))


class Starts(JobStarter):
    """The starts of a job with 2 restarts, whose runs end as listed.

    An end is an outcome, an error of the start, or a signal that comes before it; with
    a number of seconds, it comes after that time.
    """

    def __init__(self, *ends, stop=None, wait_secs=0.0):
        self.ends, self.stop_signal = list(ends), stop
        self.now, self.lines, self.handles = 0.0, [], []
        self.wait_secs = wait_secs  # for room, before each start
        job = Job(command=("a.py",), replicas={"chief": 1}, max_restarts=2)
        super().__init__(job, self, self.wait, self.lines.append, lambda: self.now)

    def submit(self, _job):
        self.now += self.wait_secs
        end = self.ends.pop(0)
        if isinstance(end, tuple):
            end, self.secs = end
        else:
            self.secs = 1.0
        if isinstance(end, Exception):
            raise end
        if isinstance(end, signal.Signals):
            self.stop(end)
        self.handles.append(Handle(end))
        return self.handles[-1]

    def wait(self, handle):
        self.now += self.secs
        if self.stop_signal is not None:
            self.stop(self.stop_signal)
        return handle.outcome


def test_a_job_that_has_lost_machines_is_started_again_as_often_as_a_task():
    starts = Starts(LOST, LOST, DONE)
    assert starts.run() is DONE
    assert starts.lines == [
        "chief lost its node: starting the job again (1 of 2)",
        "chief lost its node: starting the job again (2 of 2)",
    ]
    outcome = Starts(LOST, LOST, LOST).run()
    assert outcome.exit_status == 1
    assert outcome.reason == "chief lost its node; all restarts are used up (2)"


def test_losses_that_are_far_apart_do_not_add_up():
    starts = Starts(*[(LOST, 3600.0)] * 9, DONE)
    assert starts.run() is DONE
    assert starts.lines == 9 * ["chief lost its node: starting the job again (1 of 2)"]


def test_the_time_that_a_job_waits_for_room_is_no_time_without_a_loss():
    error = LaunchError("no room")
    outcome = Starts(LOST, error, error, wait_secs=3600.0).run()
    assert outcome.reason.endswith("all restarts are used up (2)")


@pytest.mark.parametrize("error", [LaunchError("no room"), ConfigError("no room")])
def test_a_start_that_fails_is_tried_again_and_does_not_hide_how_the_job_ended(error):
    assert Starts(LOST, error, DONE).run() is DONE
    outcome = Starts(LOST, error, error).run()
    assert (outcome.exit_status, outcome.is_machine_lost) == (1, True)
    assert outcome.reason == (
        "chief lost its node; the job cannot be started again: no room; "
        "all restarts are used up (2)"
    )
    with pytest.raises(type(error)):
        Starts(error).run()


def test_a_job_that_is_stopped_after_a_loss_is_not_started_again():
    outcome = Starts(LOST, stop=signal.SIGINT).run()
    assert outcome.exit_status == 130
    reason = "chief lost its node; the job was stopped by SIGINT"
    assert outcome.reason == reason
    outcome = Starts(LOST, signal.SIGINT).run()
    assert (outcome.exit_status, outcome.reason) == (130, reason)


def test_a_job_is_stopped_by_the_first_signal_and_ended_at_once_by_the_next():
    starts = Starts(STOPPED, stop=signal.SIGTERM)
    assert starts.run() is STOPPED
    starts.stop(signal.SIGINT)
    assert starts.handles[0].cancelled == [
        (143, "the job was stopped by SIGTERM"),
        (130, "the job was stopped by SIGINT"),
    ]
    with pytest.raises(StoppedBeforeStart):
        Starts(signal.SIGTERM).run()
