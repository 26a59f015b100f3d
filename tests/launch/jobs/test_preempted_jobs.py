"""Clusters that are told to end: the last step is saved, and nobody takes it for done."""

import contextlib
import operator
import os
import re
import signal
from pathlib import Path

import pytest
import tensorflow as tf

pytestmark = pytest.mark.long("whole jobs are stopped and started again")

_NAME = operator.attrgetter("name")
_PROGRAM = Path(__file__).parents[1] / "programs" / "preempted.py"
_PS = ("--workers", "1", "--ps", "1")
_MWMS = ("--workers", "1")


def _steps(job):
    return [int(n) for n in re.findall(r"\| step (\d+)$", job.text, re.M)]


def _pid(job, task):
    return int(job.wait_for(rf"^{task} *\| pid (\d+)$")[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=_NAME)
@pytest.mark.parametrize(
    "options, arguments",
    [
        ((*_PS, "--evaluator"), []),
        (_PS, ["--strategy", "ps"]),
        (_PS, ["--sync", "2"]),
        (_MWMS, ["--strategy", "mwms"]),
    ],
    ids=["ps", "ps strategy", "ps, synchronous", "mwms"],
)
def test_a_job_that_is_stopped_saves_the_last_step_of_all(
    launch, tmp_path, saved_step, options, arguments, number
):
    job = launch(*options, _PROGRAM, *arguments)
    for task in ("chief", "worker 0"):
        job.wait_for(rf"^{task} *\| step \d+$", timeout_secs=90)
    job.process.send_signal(number)
    assert job.end() == 128 + number, job.text
    assert saved_step() == max(_steps(job)), job.text
    assert ("SIGTERM" in job.text) == (number == signal.SIGTERM), job.text
    # A ps or an evaluator of another launcher must not take this for the end.
    assert not (tmp_path / "model" / "training_finished.json").exists()
    saved = tf.train.latest_checkpoint(str(tmp_path / "model"))
    go_on = "the same command goes on from there"
    assert job.text.endswith(f"newest good checkpoint: {saved}; {go_on}\n")


def _signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the first may have ended it
            os.kill(pid, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=_NAME)
@pytest.mark.parametrize(
    "options, arguments",
    [
        ((*_PS, "--evaluator"), []),
        (_PS, ["--strategy", "ps"]),
        (_MWMS, ["--strategy", "mwms"]),
    ],
    ids=["ps", "ps strategy", "mwms"],
)
def test_a_signal_to_all_processes_of_a_job_saves_the_last_step_of_the_chief(
    launch, saved_step, options, arguments, number
):
    job = launch(*options, "--max-restarts", "0", _PROGRAM, *arguments)
    for task in ("chief", "worker 0"):
        job.wait_for(rf"^{task} *\| step \d+$", timeout_secs=90)
    # As systemd: the main process first.
    _signal_all((job.process.pid, *job.children()), number)
    assert job.end() == 128 + number, job.text
    assert f"the job was stopped by {number.name}\n" in job.text
    last = int(re.findall(r"^chief *\| step (\d+)$", job.text, re.M)[-1])
    assert saved_step() >= last, job.text


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1], ids=_NAME)
def test_a_notice_to_all_processes_stops_a_job_as_sigterm_does(
    launch, saved_step, number
):
    """As from a terminal that closes, and from a batch system before its time limit."""
    job = launch(*_PS, _PROGRAM)
    for task in ("chief", "worker 0"):
        job.wait_for(rf"^{task} *\| step \d+$", timeout_secs=90)
    # To all of its processes, and one of them twice.
    pids = (job.process.pid, *job.children(), job.process.pid)
    _signal_all(pids, number)
    assert job.end() == 143, job.text
    assert f"the job was stopped by {number.name}\n" in job.text
    assert saved_step() == max(_steps(job)), job.text


@pytest.mark.parametrize(
    "task", ["chief", pytest.param("worker 0", marks=pytest.mark.smoke)]
)
def test_a_task_of_a_mirrored_strategy_that_is_stopped_stops_all_at_one_step(
    launch, saved_step, task
):
    options = (*_MWMS, "--max-restarts", "0")
    job = launch(*options, _PROGRAM, "--strategy", "mwms")
    for each in ("chief", "worker 0"):
        job.wait_for(rf"^{each} *\| step \d+$", timeout_secs=90)
    os.kill(_pid(job, task), signal.SIGTERM)
    assert job.end() == 1, job.text
    assert re.search(r"^estimator-runtime: (chief|worker 0) was stopped by SIGTERM: no restarts$", job.text, re.M)  # fmt: skip
    last = [
        int(re.findall(rf"^{each} *\| step (\d+)$", job.text, re.M)[-1])
        for each in ("chief", "worker 0")
    ]
    assert last == [saved_step()] * 2, job.text


def test_a_gang_that_was_stopped_goes_on_from_the_step_at_which_it_stopped(
    launch, saved_step
):
    job = launch(*_MWMS, _PROGRAM, "--strategy", "mwms", "--steps", "600")
    for each in ("chief", "worker 0"):
        job.wait_for(rf"^{each} *\| step \d+$", timeout_secs=90)
    os.kill(_pid(job, "worker 0"), signal.SIGTERM)
    assert job.end() == 0, job.text
    restart = "restarting all trainers now (1 of 3)"
    assert f"was stopped by SIGTERM: {restart}" in job.text
    for each in ("chief", "worker 0"):
        steps = [
            int(n) for n in re.findall(rf"^{each} *\| step (\d+)$", job.text, re.M)
        ]
        assert steps == list(range(1, 601)), job.text
    assert saved_step() == 600


def test_without_eager_execution_a_mirrored_strategy_ends_without_a_hang(launch):
    options = (*_MWMS, "--max-restarts", "0")
    job = launch(*options, _PROGRAM, "--strategy", "mwms", "--no_eager")
    job.wait_for(r"^worker 0 *\| step \d+$", timeout_secs=90)
    os.kill(_pid(job, "worker 0"), signal.SIGTERM)
    assert job.end() == 1, job.text
    assert "cannot agree on a last step: ending at once" in job.text
    reason = (
        "worker 0 was killed by SIGTERM, which this launcher did not send: no restarts"
    )
    assert f"estimator-runtime: {reason}\n" in job.text


@pytest.mark.parametrize("task", ["chief", "worker 0"])
def test_a_trainer_that_is_stopped_leaves_the_others_training_and_comes_back(
    launch, task
):
    job = launch(*_PS, _PROGRAM, "--steps", "700", "--step_secs", "0.02")
    for each in ("chief", "worker 0"):
        job.wait_for(rf"^{each} *\| step \d+$", timeout_secs=90)
    os.kill(_pid(job, task), signal.SIGTERM)
    job.wait_for(
        rf"^launcher +\| {task} was stopped by SIGTERM: "
        r"restarting it now \(1 of 3\);"
    )
    assert job.end() == 0, job.text
    steps = [int(n) for n in re.findall(rf"^{task} *\| step (\d+)$", job.text, re.M)]
    assert steps == sorted(steps), "the global step fell"
