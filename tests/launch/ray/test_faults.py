"""What jobs in a real Ray cluster survive: the loss of a process, an actor, a node."""

import os
import signal

import pytest

pytestmark = pytest.mark.long(
    "nodes of a Ray cluster start, die and are found to be dead"
)

_PS = ("--workers", "1", "--ps", "1")
_MWMS = ("--workers", "1")


def _wait_at_gate(job, tasks=("chief", "worker 0")):
    for task in tasks:
        job.wait_for(rf"^{task} *\| step [4-9]\d$", timeout_secs=90)


@pytest.mark.parametrize("victim", ["process", "actor"])
def test_a_lost_worker_comes_back_in_place_and_no_step_is_lost(
    train, tmp_path, saved_step, victim
):
    job = train(
        _PS,
        *("--steps", "200", "--save_steps", "1000"),
        *("--gate", "40:rejoin", "--gate", "100:end"),
    )
    _wait_at_gate(job)
    if victim == "process":
        os.kill(job.pid("worker 0"), signal.SIGKILL)
        what = "was killed by SIGKILL"
    else:
        os.kill(job.actor_pid("worker 0"), signal.SIGKILL)
        what = r"lost its actor \(The actor is dead because .+\)"
    job.wait_for(rf"^launcher +\| worker 0 {what}: restarting it now \(1 of 3\);")
    (tmp_path / "rejoin").touch()
    job.wait_for(r"^worker 0 *\| step 1\d\d$", timeout_secs=90)
    (tmp_path / "end").touch()
    assert job.end(120) == 0, job.text
    assert job.steps() == sorted(job.steps()), "the global step fell"
    assert saved_step() >= 200
    assert "(2 of 3)" not in job.text


def test_a_lost_actor_restarts_a_gang_from_its_checkpoint(train, tmp_path, saved_step):
    job = train(_MWMS, "--strategy", "mwms", "--gate", "40:go_on")
    _wait_at_gate(job)
    os.kill(job.actor_pid("worker 0"), signal.SIGKILL)
    job.wait_for(
        r"^launcher +\| worker 0 lost its actor \(.+\): restarting all trainers now "
        r"\(1 of 3\);"
    )
    (tmp_path / "go_on").touch()
    assert job.end(120) == 0, job.text
    assert saved_step() == 100
    steps = job.steps()
    assert steps.count(1) == 1, "the training began anew"
    assert "(2 of 3)" not in job.text


_LARGE = ("--cpus-per-worker", "1.5")
_GONE = (
    r"lost its node \(.+\): give the same command again to go on, on the nodes that are "
    r"left$"
)


def test_a_lost_node_of_a_worker_ends_the_job_with_the_last_step_saved(
    cluster, train, saved_step
):
    def start(steps):
        pace = ("--save_steps", "100000", "--step_secs", "0.02")
        return train((*_PS, *_LARGE), "--steps", steps, *pace)

    job = start("100000")
    _wait_at_gate(job)
    # The head has only 1 CPU: chief and worker have a node each, and not that.
    lost = job.node("worker 0")
    cluster.add()
    cluster.kill(lost)
    assert job.end(150) == 1
    job.wait_for(rf"^estimator-runtime: worker 0 {_GONE}")
    saved = saved_step()
    assert saved >= max(job.steps())
    again = start(str(saved + 50))
    assert again.end(150) == 0, again.text
    assert lost not in {again.node("chief"), again.node("worker 0")}
    assert min(again.steps()) >= saved  # read before the step that follows
    assert saved_step() >= saved + 50


def test_a_lost_node_of_a_gang_ends_the_job_with_its_checkpoint(
    cluster, train, tmp_path, saved_step
):
    arguments = ("--strategy", "mwms", "--save_steps", "20", "--gate", "40:go_on")
    job = train((*_MWMS, *_LARGE), *arguments)
    _wait_at_gate(job)
    cluster.add()
    cluster.kill(job.node("worker 0"))
    assert job.end(150) == 1
    job.wait_for(rf"^estimator-runtime: worker 0 {_GONE}")
    assert saved_step() >= 20
