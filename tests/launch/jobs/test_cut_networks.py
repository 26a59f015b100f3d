"""A job on a machine of its own, whose network is cut while it trains."""

import os
import re
import subprocess
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("tasks notice a cut network by deadlines in seconds")

_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"


def _ip(*arguments):
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@pytest.fixture
def machine():
    """Return the name of a network namespace with a loopback device of its own."""
    name = f"er-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    try:
        _ip("netns", "add", name)
    except OSError as error:
        pytest.skip(f"no network namespaces can be made here: {error}")
    _ip("-n", name, "link", "set", "lo", "up")
    yield name
    _ip("netns", "delete", name)


def test_the_tasks_of_a_job_that_are_cut_off_are_restarted_and_adopt_the_ps(
    launch, machine, tmp_path
):
    job = launch(
        *("--workers", "1", "--ps", "1", "--heartbeat-timeout", "6"),
        *(_PROGRAM, "--steps", "100", "--save_steps", "1000000", "--gate", "40:go_on"),
        within=("ip", "netns", "exec", machine),
    )
    trainers = ("chief", "worker 0")
    for name in trainers:
        job.wait_for(rf"^{name} *\| step 4\d$")
    _ip("-n", machine, "link", "set", "lo", "down")
    for name in trainers:
        silent = job.wait_for(
            rf"^{name} *\| no answer from ps 0 at 127\.0\.0\.1:\d+ for (\d+) s "
            r"\(is it stopped, or cut off\?\); "
        )
        assert int(silent[1]) < 15
        job.wait_for(
            rf"^launcher *\| {name} ended with PeerTimeoutError \(exit status 1\): "
            r"restarting it now \(1 of 3\);"
        )
    (tmp_path / "go_on").touch()
    _ip("-n", machine, "link", "set", "lo", "up")
    assert job.end() == 0, job.text
    steps = [int(n) for n in re.findall(r"^chief *\| step (\d+)$", job.text, re.M)]
    assert steps == sorted(steps), "the global step fell"
