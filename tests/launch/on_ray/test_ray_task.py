"""The actor of a task, as a plain object in a process of its own."""

import re
import subprocess
import sys

_PROGRAM = """
import sys, time

from estimator_runtime.launch import Job
from estimator_runtime.launch.ray_task import TaskActor
from estimator_runtime.launch.task import Output, Run


class Actor(TaskActor):
    def where(self):  # Ray would know
        return "id", "127.0.0.1", "."


job = Job(command=("toy.py",), replicas={"chief": 1})
actor = Actor(job, None, lease_secs=2)
actor.start(Run(task=job.tasks[0], attempt=0), {}, actor.take_port(), "id")
answers, lines = 0, []
while not lines:
    events = actor.poll(answers)
    assert actor.poll(answers) == events  # as after an answer that was lost
    answers += 1
    lines += [event.line for event in events if isinstance(event, Output)]
    if answers > 20:
        sys.exit("the task has written nothing")
print(lines[0], flush=True)
time.sleep(60)
sys.exit("the actor is still there")
"""


def test_an_actor_that_nobody_asks_any_more_ends_with_its_task(tmp_path):
    (tmp_path / "toy.py").write_text(
        "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(120)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert answer.returncode == 1, answer.stderr
    pid = re.fullmatch(r"pid (\d+)\n", answer.stdout)[1]
    assert subprocess.run(["kill", "-0", pid], stderr=subprocess.DEVNULL).returncode
