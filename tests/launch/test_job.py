"""What a job may be, and what is refused before anything starts."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch import Job
from estimator_runtime.launch.task import Task


def test_a_ps_starts_before_those_who_need_it_and_the_chief_leads():
    job = Job(
        command=("train.py",),
        replicas={"worker": 2, "ps": 1, "chief": 1, "evaluator": 1},
    )
    assert [str(task) for task in job.tasks] == [
        "ps 0", "chief", "worker 0", "worker 1", "evaluator",
    ]  # fmt: skip
    assert job.trainers[0] == Task(type="chief", index=0)


@pytest.mark.parametrize(
    "replicas, is_gang",
    [
        ({"chief": 1, "worker": 2}, True),
        ({"worker": 2}, True),
        ({"chief": 1, "worker": 2, "ps": 1}, False),
        ({"chief": 1, "evaluator": 1}, False),
    ],
)
def test_several_trainers_without_a_ps_fail_together(replicas, is_gang):
    assert Job(command=("train.py",), replicas=replicas).is_gang is is_gang


@pytest.mark.parametrize(
    "change, message",
    [
        ({"command": ()}, "Job: command is empty; name the script to run"),
        ({"replicas": {"worker": -1}}, "Job: replicas['worker'] is -1; give a whole number, 0 or more"),
        ({"replicas": {"worker": "2"}}, "Job: replicas['worker'] is '2'; give a whole number, 0 or more"),
        ({"replicas": {"chief": 2}}, "Job: replicas['chief'] is 2; there can be only one"),
        ({"replicas": {"evaluator": 1}}, "Job: replicas is {'evaluator': 1}, which has no chief and no worker; add one"),
        ({"max_restarts": -1}, "Job: max_restarts is -1; give a whole number, 0 for no restarts"),
        ({"heartbeat_timeout_secs": 0}, "Job: heartbeat_timeout_secs is 0; give a number of seconds above 0"),
        ({"refill_restarts_secs": "1 h"}, "Job: refill_restarts_secs is '1 h'; give a number of seconds above 0"),
        ({"grace_secs": -1}, "Job: grace_secs is -1; give a number of seconds, 0 or more"),
        ({"env": {"ESTIMATOR_RUNTIME_STOP_GRACE_SECS": "9"}}, "Job: env sets ESTIMATOR_RUNTIME_STOP_GRACE_SECS, which the launcher takes from grace_secs; give that instead"),
        ({"env": {"OMP_NUM_THREADS": 2}}, "Job: env has 'OMP_NUM_THREADS': 2; give names and values as str"),
        ({"env": {"TF_CONFIG": "{}"}}, "Job: env sets TF_CONFIG, which the launcher makes for each task; leave it out"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_is_one_line(change, message):
    with pytest.raises(ConfigError) as refusal:
        Job(**{"command": ("train.py",), "replicas": {"chief": 1}, **change})
    assert str(refusal.value) == message
