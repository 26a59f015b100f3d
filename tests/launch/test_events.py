"""Lines that wait while nobody takes them."""

import time

import pytest

from estimator_runtime.launch import Job
from estimator_runtime.launch.backends.local.processes import Processes
from estimator_runtime.launch.task import Ended, Events, Output, Run

# Far more than a pipe holds.
_PROGRAM = """
import pathlib, sys
pathlib.Path("began").touch()
for number in range(5000):
    print(number, "x" * 1000)
pathlib.Path("ended").touch()
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return a function that starts a task that writes much, and tells by `Events`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "much.py").write_text(_PROGRAM)
    job = Job(command=("much.py",), replicas={"chief": 1})
    processes = Processes(job, warm=False, private_network=False)

    def start(events):
        processes.open(events)
        run = Run(task=job.tasks[0], attempt=0)
        processes.start(run, {})
        return run

    yield start
    processes.close()


def _next_until(events, is_last):
    """Return the events up to the first for which that is true."""
    seen = []
    while not seen or not is_last(seen[-1]):
        seen.append(events.get(60))
    return seen


def test_lines_that_nobody_takes_do_not_fill_the_memory(start, tmp_path):
    events = Events()
    start(events)
    deadline = time.monotonic() + 60
    while events.takes_lines():
        assert not (tmp_path / "ended").exists()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    seen = _next_until(events, lambda event: isinstance(event, Ended))
    assert sum(isinstance(event, Output) for event in seen) == 5000


def test_a_task_that_cannot_be_handed_to_the_fork_server_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "much.py").write_text(_PROGRAM)
    job = Job(command=("much.py",), replicas={"chief": 1})
    processes, events = Processes(job, warm=False, private_network=False), Events()
    processes.open(events)
    processes.close()
    run = Run(task=job.tasks[0], attempt=0)
    processes.start(run, {})
    cause = "could not be handed to the fork server: Bad file descriptor"
    ended = _next_until(events, lambda event: isinstance(event, Ended))[-1]
    assert ended == Ended(run=run, status=-9, cause=cause)
