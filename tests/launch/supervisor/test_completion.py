"""When a job is complete, and whom it still waits for, by a clock of the test."""

import io
import types

import pytest

from estimator_runtime.launch import Job
from estimator_runtime.launch.supervisor.completion import Completion
from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.shutdown import Shutdown
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.terminal.console import Console


class _NoSignals:
    """A back end whose tasks get no signal."""


def _trained(scan=None, **arguments):
    """Return (the completion of a job that evaluates yet, the evaluator, what it says)."""
    job = Job(command=("train.py",), replicas={"chief": 1, "evaluator": 1}, **arguments)
    said = io.StringIO()
    console = Console(said, said)
    chief, evaluator = watches = [TaskState(task, 0) for task in job.tasks]
    for watch in watches:
        watch.start(now=0.0)
    chief.end(0)
    record = Record([], log_dir=None)
    if scan is not None:
        chief.hear({"trained": 20}, now=0.0)
        record = types.SimpleNamespace(model_dir="/model", scan=scan)
    shutdown = Shutdown(_NoSignals(), watches, [chief], 30.0, console)
    completion = Completion(job, watches, [chief], record, shutdown, console)
    return completion, evaluator, said


def test_a_last_evaluation_may_take_as_long_as_it_does_and_is_told_of():
    completion, _, said = _trained()
    for now in range(0, 24 * 3600, 10):
        assert completion.advance(float(now)) is None
    assert completion.is_seen
    lines = said.getvalue().splitlines()
    assert lines[:2] == [
        f"launcher | the training has been done for {secs} s: waiting for evaluator"
        for secs in (60, 120)
    ]
    assert len(lines) == 11  # from one minute to half a day


def test_a_last_evaluation_that_takes_longer_than_the_user_lets_it_is_named():
    completion, _, _ = _trained(evaluation_timeout_secs=100.0)
    assert completion.advance(7.0) is None
    assert completion.advance(106.9) is None
    assert completion.advance(107.0) == (
        "the training is done, but evaluator did not end within 100 s after it; "
        "--evaluation-timeout is that limit"
    )


def test_an_evaluator_that_waits_for_its_restart_is_named_too():
    completion, evaluator, _ = _trained(evaluation_timeout_secs=100.0)
    assert completion.advance(7.0) is None
    evaluator.end(1)
    evaluator.restart_at = 110.0
    assert completion.advance(107.0) == (
        "the training is done, but evaluator did not end within 100 s after it; "
        "--evaluation-timeout is that limit"
    )


@pytest.mark.parametrize("has_it", [True, False])
def test_a_disk_that_hangs_at_the_end_does_not_use_up_the_time_of_a_checkpoint(has_it):
    hangs, shown = None, (None, 19, None)
    answers = {0.0: shown, 10.0: shown, 590.0: hangs, 600.0: shown, 640.0: shown}
    completion, _, said = _trained(scan=lambda: answers[now])
    for now in answers:
        assert completion.advance(now) is None
    now, answers[651.0] = 651.0, ("ckpt-20", 20, None) if has_it else shown
    missing = completion.advance(now)
    assert completion.is_seen is has_it
    assert missing == (
        None if has_it else "chief has saved step 20, but the newest has 19"
    )
    assert said.getvalue().splitlines() == [
        "launcher | chief has saved step 20, but the newest has 19: waiting 60 s at most "
        "until its folder shows it",
        "launcher | chief has saved step 20, but /model hangs: waiting 20 s at most until "
        "its disk answers",
    ]


def test_a_disk_that_hangs_at_the_end_is_not_waited_for_for_ever():
    completion, _, _ = _trained(scan=lambda: None)
    assert completion.advance(1.0) is None
    assert completion.advance(600.9) is None
    problem = completion.advance(601.0)
    assert problem == "chief has saved step 20, but /model hangs"
