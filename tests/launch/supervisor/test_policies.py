"""What is decided by the state of a job and the time alone."""

import pytest

from estimator_runtime.launch.supervisor import policies
from estimator_runtime.launch.supervisor.actions import (
    Fail,
    GiveUp,
    Kill,
    Restart,
    Say,
    Start,
    Terminate,
)
from estimator_runtime.launch.supervisor.record import Newest

_PS = {"chief": 1, "worker": 2, "ps": 1}
_GANG = {"chief": 1, "worker": 2}
_NAN = "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError"


def _done(actions):
    """Return what the actions do to tasks, without what is said: (name, task)."""
    return [
        (type(each).__name__, str(each.task))
        for each in actions
        if not isinstance(each, Say)
    ]


def _said(actions):
    return [each.line for each in actions if isinstance(each, Say)]


# A job that has to stop.


def _stop(job, **how):
    job.ending = Fail("told to", 143, **how)

    def stop():
        actions = list(policies.stop_in_order(job, 0.0))
        for each in actions:
            state = job.tasks[each.task]
            if isinstance(each, Kill):
                state.kill(0.0)
            else:
                state.stop(0.0, each.grace_secs)
        return actions

    return stop


def test_where_there_is_a_ps_each_ends_when_those_before_it_have(job_of):
    job, tasks = job_of(replicas=_PS)
    stop = _stop(job, lets_save=True)
    ps, chief, *workers = (state.task for state in tasks.values())
    assert stop() == [Terminate(worker, 30.0) for worker in workers]
    tasks["worker 1"].end(143)
    assert stop() == []
    tasks["worker 0"].end(143)
    assert stop() == [Terminate(chief, 30.0)]
    tasks["chief"].end(143)
    assert stop() == [Terminate(ps, 2.0)]


def test_who_takes_the_steps_for_all_ends_first_and_the_others_need_no_time(job_of):
    job, tasks = job_of(replicas=_PS)
    tasks["chief"].hear({"synchronous": True}, 0.0)
    stop = _stop(job, lets_save=True)
    ps, chief, *workers = (state.task for state in tasks.values())
    assert stop() == [Terminate(chief, 30.0)]
    tasks["chief"].end(143)
    assert stop() == [Terminate(worker, 2.0) for worker in workers]
    for name in ("worker 0", "worker 1"):
        tasks[name].end(143)
    assert stop() == [Terminate(ps, 2.0)]


def test_a_leader_does_not_save_what_the_nan_of_another_has_reached(job_of):
    job, tasks = job_of(replicas=_PS)
    stop = _stop(job, lets_save=True)
    stop()
    tasks["worker 0"].hear({"error": [_NAN]}, 1.0)
    tasks["worker 0"].end(1)
    assert _done(stop()) == [("Kill", "chief")]


def test_who_does_not_end_by_its_deadline_is_killed_and_given_up_in_the_end(job_of):
    job, tasks = job_of(replicas={"chief": 1})
    chief = tasks["chief"]
    chief.stop(0.0, 30.0)
    assert list(policies.kill_overdue(job, 29.0)) == []
    assert list(policies.kill_overdue(job, 30.0)) == [
        Say("chief did not end within 30 s: killing it"),
        Kill(chief.task),
    ]
    chief.kill(30.0)
    assert list(policies.give_up_unkillable(job, 44.0)) == []
    assert list(policies.give_up_unkillable(job, 45.0)) == [GiveUp(chief.task)]


# Starts and restarts.


@pytest.mark.parametrize(
    ("status", "report", "how"),
    [
        (-9, {}, [("Kill", "chief"), ("Kill", "worker 1")]),
        # The others have taken the last step too, and may be saving it.
        (143, {}, [("Terminate", "chief"), ("Terminate", "worker 1")]),
        (1, {"unfinished": []}, [("Terminate", "chief"), ("Terminate", "worker 1")]),
    ],
    ids=["killed", "stopped", "trained"],
)
def test_a_gang_is_restarted_as_a_whole(job_of, status, report, how):
    job, tasks = job_of(replicas=_GANG)
    worker = tasks["worker 0"]
    worker.hear(report, 1.0)
    worker.end(status)
    actions = list(policies.on_end(job, worker, 5.0))
    assert sorted(_done(actions)) == sorted([("Restart", "worker 0"), *how])
    assert not any(getattr(each, "is_signalled", False) for each in actions)
    worker.restart(5.0)
    assert list(policies.start_those_due(job, 5.0)) == []
    for name in ("chief", "worker 1"):
        tasks[name].end(0)
        assert list(policies.on_end(job, tasks[name], 6.0)) == [
            Restart(tasks[name].task, 6.0)
        ]
        tasks[name].restart(6.0)
    assert list(policies.start_those_due(job, 6.0)) == [
        Start(state.task) for state in job.trainers
    ]


@pytest.mark.parametrize(
    ("replicas", "lost", "lets_save"),
    [(_PS, "worker 0", True), (_PS, "ps 0", False), (_GANG, "worker 0", False)],
)
def test_a_task_whose_machine_is_lost_ends_the_job_and_the_leader_saves_if_it_can(
    job_of, replicas, lost, lets_save
):
    job, tasks = job_of(replicas=replicas)
    tasks[lost].end(-9, cause="lost its node (it is dead)", is_machine_lost=True)
    [fail] = policies.on_end(job, tasks[lost], 0.0)
    assert fail == Fail(
        f"{lost} lost its node (it is dead): it cannot be restarted there",
        task=tasks[lost].task,
        lets_save=lets_save,
    )


# Signs of life.


def test_a_silent_task_is_named_and_then_killed_and_a_sign_of_life_forgives(job_of):
    job, tasks = job_of(replicas={"chief": 1})
    chief = tasks["chief"]
    chief.hear({"imported": True}, now=0.1)

    def check(now):
        return list(policies.end_silent_tasks(job, now))

    assert check(10.0) == []
    named = check(10.3)
    assert _said(named) == [
        "chief has given no sign of life for 10 s (is it stopped, or cut off?); after "
        "30 s it counts as failed"
    ]
    assert check(11.7)[0].key == named[0].key  # so it is told once
    chief.hear({}, now=12.0)
    assert check(15.0) == []
    assert check(42.0) == [
        Say("chief gave no sign of life for 30 s: killing it"),
        Kill(chief.task, "gave no sign of life for 30 s"),
    ]


@pytest.mark.parametrize(
    ("report", "secs"),
    [({}, 120.0), ({"imported": True}, 30.0), ({"imported": True, "ending": True}, 120.0)],
    ids=["importing", "running", "ending"],
)  # fmt: skip
def test_a_task_may_be_silent_longer_at_its_start_and_at_its_end(job_of, report, secs):
    job, tasks = job_of(replicas={"chief": 1})
    tasks["chief"].hear(report, now=0.0)
    assert _done(policies.end_silent_tasks(job, secs - 0.1)) == []
    assert _done(policies.end_silent_tasks(job, secs)) == [("Kill", "chief")]


def test_a_silent_task_that_uses_the_cpu_is_named_and_not_killed_until_it_stops(job_of):
    job, tasks = job_of(replicas={"chief": 1})
    tasks["chief"].hear({"imported": True}, now=0.0)
    said = {}
    for now in range(2, 122, 2):
        tasks["chief"].work(float(now))
        for each in policies.end_silent_tasks(job, float(now)):
            said.setdefault(each.key, each.line)
    assert list(said.values()) == [
        f"chief has not reported for {secs} s, but uses the CPU: still waiting; a native "
        "call may be holding the GIL"
        for secs in (30, 60, 120)
    ]
    assert _done(policies.end_silent_tasks(job, 150.0)) == [("Kill", "chief")]


# The end of the training.


@pytest.fixture
def trained(job_of):
    """Return (job, evaluator) of a job whose chief has saved step 20."""
    job, tasks = job_of(
        replicas={"chief": 1, "ps": 1, "evaluator": 1}, evaluation_timeout_secs=None
    )
    tasks["chief"].hear({"trained": 20}, 0.0)
    tasks["chief"].end(0)
    job.trained_at = 0.0
    return job, tasks["evaluator"]


@pytest.mark.parametrize(
    ("newest", "missing"),
    [
        (Newest("model.ckpt-20", 20), None),
        (Newest("model.ckpt-21", 21), None),
        (Newest(unknown="as only TensorFlow reads it"), None),
        (Newest("model.ckpt-19", 19), "chief has saved step 20, but the newest has 19"),
        (Newest(), "chief has saved step 20, but there is no checkpoint"),
        (None, "chief has saved step 20, but /m hangs"),
    ],
)
def test_the_last_step_has_to_be_in_a_checkpoint(trained, newest, missing):
    job, _ = trained
    job.leader.hear({"model_dir": "/m"}, 0.0)
    assert policies.missing_in(job, newest) == missing


def test_a_last_checkpoint_is_waited_for_but_not_for_ever(trained):
    job, _ = trained
    job.missing = "the last step is missing"
    assert list(policies.wait_for_last_checkpoint(job, 4.9)) == []
    assert _said(policies.wait_for_last_checkpoint(job, 540.0)) == [
        "the last step is missing: waiting 60 s at most"
    ]
    assert list(policies.wait_for_last_checkpoint(job, 600.0)) == [
        Fail("the last step is missing")
    ]


def test_a_last_evaluation_may_take_as_long_as_it_does_and_is_told_of(trained):
    job, _ = trained
    job.completed_at = 0.0
    job.tasks[job.job.tasks[0]].stop(0.0, 2.0)
    job.tasks[job.job.tasks[0]].release()
    job.tasks[job.job.tasks[0]].end(143)
    said = {}
    for now in range(0, 24 * 3600, 10):
        for each in policies.end_with_training(job, float(now)):
            said.setdefault(each.key, each.line)
    assert list(said.values())[:2] == [
        f"the training has been done for {secs} s: waiting for evaluator"
        for secs in (60, 120)
    ]
    assert len(said) == 11  # from one minute to half a day


def test_only_a_last_evaluation_can_exceed_its_time(job_of):
    job, tasks = job_of(
        replicas={"chief": 1, "ps": 1, "evaluator": 1}, evaluation_timeout_secs=5.0
    )
    tasks["chief"].end(0)
    job.completed_at = 0.0

    def reasons(now):
        actions = policies.end_with_training(job, now)
        return [each.reason for each in actions if isinstance(each, Fail)]

    [reason] = reasons(5.0)
    assert "but evaluator did not end within 5 s" in reason
    tasks["evaluator"].end(0)
    assert tasks["ps 0"].is_alive
    assert reasons(9.0) == []
