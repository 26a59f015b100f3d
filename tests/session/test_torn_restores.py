"""A restore on parameter servers that is interrupted, and the chief that follows it.

In each step all variables are set to that step, so a mixture of two steps shows.
"""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("a cluster is killed and started again at each point")

_PATIENCE_SECS = 150.0
_PROGRAM = Path(__file__).parent / "torn_restore.py"


class Task:
    """A process with a TF_CONFIG."""

    def __init__(self, fork, folder, cluster, task_type, index, arguments):
        self.output = folder / f"{len(list(folder.iterdir()))}-{task_type}-{index}.out"
        self.output.touch()
        task = {"type": task_type, "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": config}
        self.process = fork([_PROGRAM, *arguments], folder, environ, self.output)

    @property
    def text(self):
        return self.output.read_text(errors="replace")

    def wait_for(self, text):
        deadline = time.monotonic() + _PATIENCE_SECS
        while text not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.05)

    def end(self):
        try:
            return self.process.wait(_PATIENCE_SECS)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running:\n{self.text}")

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(fork, tmp_path, free_addresses):
    """Return a function that starts a task of a cluster of a chief and two ps."""
    chief, *servers = free_addresses(3)
    cluster = {"chief": [chief], "ps": servers}
    started = []

    def start(task_type, index=0, *arguments):
        started.append(Task(fork, tmp_path, cluster, task_type, index, arguments))
        return started[-1]

    yield start
    for task in started:
        task.kill()


def values_of(chief):
    """Return the values that a chief has begun with, and whether it has adopted them."""
    found = re.search(r"^began with (.*)$", chief.text, re.M)
    assert found, chief.text
    return json.loads(found[1]), "the parameter servers are alive" in chief.text


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "interrupted, expected",
    [
        ("before any value is restored", ([10] * 6, False)),
        ("after those of ps 0", ([10] * 6, False)),
        ("after those of ps 1", ([10] * 6, False)),
        ("after all", ([10] * 6, False)),
        ("in a later step", ([13] * 6, True)),
    ],
)
def test_a_chief_adopts_no_mixture_of_two_steps(start, interrupted, expected):
    start("ps", 0)
    restarted = start("ps", 1)
    first = start("chief", 0, interrupted)
    first.wait_for("trained to 15")
    restarted.kill()
    start("ps", 1)
    assert first.end() == -signal.SIGKILL, first.text
    second = start("chief")
    assert second.end() == 0, second.text
    assert values_of(second) == expected


@pytest.mark.timeout(400)
def test_a_chief_that_loses_a_ps_while_it_restores_begins_again(start):
    start("ps", 0)
    restarted = start("ps", 1)
    chief = start("chief", 0, "by an error after those of ps 1")
    chief.wait_for("trained to 15")
    restarted.kill()
    start("ps", 1)
    assert chief.end() == 0, chief.text
    assert values_of(chief) == ([10] * 6, False)


@pytest.mark.timeout(400)
def test_a_chief_does_not_adopt_a_ps_whose_loss_no_variable_shows(start):
    """A table that is empty is as good as any, for all that TensorFlow can tell."""
    start("ps", 0)
    restarted = start("ps", 1)
    first = start("chief", 0, "never", "--only_table_on_ps_1")
    first.wait_for("trained to 15")
    first.kill()
    restarted.kill()
    start("ps", 1)
    second = start("chief", 0, "--only_table_on_ps_1")
    assert second.end() == 0, second.text
    assert values_of(second) == ([10] * 6, False)
