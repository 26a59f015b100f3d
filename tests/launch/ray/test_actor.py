"""The actor of a task, as a plain object in a process of its own."""

import re
import subprocess

import pytest

_PROGRAM = """
import os, resource, sys, threading, time

from estimator_runtime.launch import Job
from estimator_runtime.launch.backends.ray.actor import TaskActor, installed
from estimator_runtime.launch.task import Output, Run


job = Job(command=("toy.py",), replicas={"chief": 1})
run = Run(task=job.tasks[0], attempt=0)
actor = TaskActor(job, None, installed(), lease_secs)
"""

_LEASE = """
actor.start(run, {}, None)
answers, lines = 0, []
while not lines:
    events = actor.poll(answers)
    assert actor.poll(answers) == events  # as after an answer that was lost
    answers += 1
    lines += [event.line for event in events if isinstance(event, Output)]
    if answers > 20:
        sys.exit("the task has written nothing")
print(*lines, sep="\\n", flush=True)
time.sleep(60)
sys.exit("the actor is still there")
"""

# Of the numbers that files may have, all are taken.
_NO_FILES = """
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
actor.start(run, {}, None)
[end] = actor.poll(0)
print(end.cause, end.status, end.is_machine_lost, flush=True)
os._exit(0)
"""


@pytest.fixture
def run(run_python, tmp_path):
    """Return a function that runs a program of an actor with a lease."""

    def run(program, lease_secs=90):
        lease = f"lease_secs = {lease_secs}\n"
        return run_python("-c", f"{lease}{_PROGRAM}{program}", cwd=tmp_path)

    return run


def test_a_task_that_its_node_cannot_start_has_ended_with_the_reason(run, tmp_path):
    (tmp_path / "toy.py").touch()
    answer = run(_NO_FILES)
    assert answer.stdout == (
        "could not be started: Too many open files (see ulimit -n and -u) -9 False\n"
    ), answer.stderr


def test_an_actor_that_nobody_asks_any_more_ends_with_its_task(run, tmp_path):
    (tmp_path / "toy.py").write_text(
        "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(120)\n"
    )
    answer = run(_LEASE, lease_secs=15)
    assert answer.returncode == 1, answer.stderr
    pid = re.fullmatch(r"pid (\d+)\n", answer.stdout)[1]
    assert subprocess.run(["kill", "-0", pid], stderr=subprocess.DEVNULL).returncode


_HERE = {"estimator_runtime": "0.1.0", "TensorFlow": "2.21.0"}


@pytest.mark.parametrize(
    ("node", "launcher", "problem"),
    [
        (_HERE, _HERE, None),
        (
            {**_HERE, "TensorFlow": "2.15.1"},
            _HERE,
            "has TensorFlow 2.15.1, and this machine 2.21.0",
        ),
        (
            {"estimator_runtime": "0.1.0"},
            {"estimator_runtime": "0.1.0"},
            "has no TensorFlow, which tasks need",
        ),
    ],
)
def test_a_node_with_other_versions_says_so(node, launcher, problem):
    from estimator_runtime.launch.backends.ray.actor import version_problem

    assert version_problem(node, launcher) == problem
