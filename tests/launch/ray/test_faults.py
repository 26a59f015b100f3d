"""What jobs in a real Ray cluster survive: the loss of a process, an actor, a node."""

import itertools
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


@pytest.fixture
def lose_node(cluster, tmp_path):
    """Return a function that takes a node from a job, whose tasks wait at their gate."""

    def lose(job, task):
        # The head has only 1 CPU: chief and worker have a node each, and not that.
        lost = job.node(task)
        cluster.add()
        cluster.kill(lost)
        job.wait_for(
            rf"^launcher +\| {task} lost its node \(.+\): it cannot be restarted there: "
            r"starting the job again \(1 of 3\)$",
            timeout_secs=150,
        )
        (tmp_path / "go_on").touch()
        return lost

    return lose


def test_a_lost_node_of_a_worker_costs_no_step_and_all_get_new_addresses(
    train, lose_node, saved_step
):
    # Without a gate, at which the chief could not save; Ray takes 15 s, 50 steps each.
    pace = ("--steps", "2500", "--step_secs", "0.02", "--save_steps", "100000")
    job = train((*_PS, *_LARGE), *pace)
    _wait_at_gate(job)
    lost = lose_node(job, "worker 0")
    assert job.end(150) == 0, job.text
    assert lost not in {job.node("chief"), job.node("worker 0")}
    assert job.steps() == sorted(job.steps()), "the global step fell"
    assert saved_step() >= 2500
    assert "(2 of 3)" not in job.text


def test_a_lost_node_of_the_chief_costs_one_save_interval_at_most(
    train, lose_node, saved_step
):
    job = train((*_PS, *_LARGE), "--save_steps", "20", "--gate", "40:go_on")
    _wait_at_gate(job)
    lost = lose_node(job, "chief")
    assert job.end(150) == 0, job.text
    assert lost not in {job.node("chief"), job.node("worker 0")}
    # Two trainers may each be a step beyond the interval when it is saved.
    falls = [a - b for a, b in itertools.pairwise(job.steps()) if b < a]
    assert all(fall < 2 * 20 + 2 for fall in falls)
    assert saved_step() >= 100
    assert "(2 of 3)" not in job.text


def test_a_lost_node_of_a_gang_takes_it_back_to_its_checkpoint(
    train, lose_node, saved_step
):
    arguments = ("--strategy", "mwms", "--save_steps", "20", "--gate", "40:go_on")
    job = train((*_MWMS, *_LARGE), *arguments)
    _wait_at_gate(job)
    lost = lose_node(job, "worker 0")
    assert job.end(150) == 0, job.text
    assert lost not in {job.node("chief"), job.node("worker 0")}
    assert job.steps().count(1) == 1, "the training began anew"
    assert saved_step() == 100
    assert "(2 of 3)" not in job.text
