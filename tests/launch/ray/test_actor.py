"""The actor of a task, as a plain object in a process of its own."""

import re
import subprocess
import sys

_PROGRAM = """
import os, resource, sys, threading, time

from estimator_runtime.launch import Job
from estimator_runtime.launch.backends.ray.actor import TaskActor
from estimator_runtime.launch.task import Output, Run


class Actor(TaskActor):
    def where(self, takes_port=False):  # Ray would know
        return "id", "127.0.0.1", ".", None


job = Job(command=("toy.py",), replicas={"chief": 1})
run = Run(task=job.tasks[0], attempt=0)
actor = Actor(job, None, lease_secs)
assert actor.poll(0) == []  # at once
"""

_LEASE = """
leases = {"id": 90.0, "other": 1.2}
starting = threading.Thread(target=actor.start, args=(run, {}, None, leases), daemon=True)
starting.start()
starting.join(1)
assert starting.is_alive()  # until it is certain that somebody has heard of it
answers, lines = 1, []
while len(lines) < 2:
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

_CLOSE = """
actor.poll(1)
actor.close()
print(actor.poll(2), flush=True)
os._exit(0)
"""

# Of the numbers that files may have, all are taken.
_NO_FILES = """
actor.poll(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
actor.start(run, {}, None, {})
[end] = actor.poll(2)
print(end.cause, end.status, end.is_displaced, flush=True)
os._exit(0)
"""


def _run(program, tmp_path, lease_secs=90):
    return subprocess.run(
        [sys.executable, "-c", f"lease_secs = {lease_secs}\n{_PROGRAM}{program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_task_that_its_node_cannot_start_has_ended_with_the_reason(tmp_path):
    (tmp_path / "toy.py").touch()
    answer = _run(_NO_FILES, tmp_path)
    assert answer.stdout == (
        "could not be started: Too many open files (see ulimit -n) -9 False\n"
    ), answer.stderr


def test_an_actor_that_is_closed_has_lost_nothing(tmp_path):
    answer = _run(_CLOSE, tmp_path)
    assert answer.stdout == "[]\n", answer.stderr


def test_an_actor_that_nobody_asks_any_more_ends_with_its_task(tmp_path):
    (tmp_path / "toy.py").write_text(
        "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(120)\n"
    )
    answer = _run(_LEASE, tmp_path, lease_secs=15)
    assert answer.returncode == 1, answer.stderr
    waits = "waiting 1 s for the last run, on a lost node, to end\n"
    pid = re.fullmatch(rf"{waits}pid (\d+)\n", answer.stdout)[1]
    assert subprocess.run(["kill", "-0", pid], stderr=subprocess.DEVNULL).returncode
