"""What becomes of the pipes of tasks, with a test as their parent."""

import json
import os
import socket
import subprocess

import pytest

from estimator_runtime.launch.backends.local.processes import Pipes, Reader
from estimator_runtime.launch.task import (
    Ended,
    Events,
    Lost,
    Output,
    Reported,
    Run,
    Task,
)

_RUN = Run(task=Task(type="chief", index=0), attempt=0)
_WITHIN_SECS = 30.0


@pytest.fixture
def reading():
    """Return (the events, the socket of the parent, the pipes of a task to write to)."""
    events = Events()
    ours, parent = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader = Reader(ours, events)
    pipes = Pipes(_RUN, events)
    pipes.open()
    reader.add(7, pipes)
    writers = [os.fdopen(write, "wb", buffering=0) for write in pipes.theirs]
    yield events, parent, writers
    parent.close()
    reader.close(_WITHIN_SECS)
    ours.close()
    for writer in writers:
        writer.close()


def _until(events, kind):
    found = [events.get(_WITHIN_SECS)]
    while not isinstance(found[-1], kind):
        found.append(events.get(_WITHIN_SECS))
    return found


def test_the_last_lines_of_all_come_before_the_loss_of_the_parent(reading):
    events, parent, (stdout, stderr, reports) = reading
    stdout.write(b"one\nhalf a li")
    stderr.write(b"two\n")
    reports.write(b'{"step": 3}\n')
    for pipe in (stdout, stderr, reports):
        pipe.close()
    parent.close()
    *told, lost = _until(events, Lost)
    assert lost == Lost(reason="the fork server of the tasks is gone")
    assert {
        (each.line, each.is_error) for each in told if isinstance(each, Output)
    } == {
        ("one", False),
        ("half a li", False),
        ("two", True),
    }
    assert {"step": 3} in [e.report for e in told if isinstance(e, Reported)]


def test_a_report_that_the_end_of_a_task_cuts_off_is_a_mere_sign_of_life(reading):
    events, parent, pipes = reading
    pipes[-1].write(b'{"step": 3}\n{"ste')
    for pipe in pipes:
        pipe.close()
    parent.close()
    told = [each.report for each in _until(events, Lost) if isinstance(each, Reported)]
    assert told == [{"step": 3}, {}]


def test_an_end_has_its_status_and_cause_and_waits_for_nobody_who_writes_on(reading):
    events, parent, (stdout, *others) = reading
    for pipe in others:
        pipe.close()
    # It writes until nobody reads any more.
    with subprocess.Popen(["yes", 1000 * "y"], stdout=stdout):
        notice = {"ended": 7, "status": -9, "cause": "could not be started"}
        parent.send(json.dumps(notice).encode())
        assert _until(events, Ended)[-1] == Ended(
            run=_RUN, status=-9, cause="could not be started"
        )
