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
        ({"replicas": {"wroker": 2}}, "Job: replicas has the task type 'wroker'; use ('chief', 'worker', 'ps', 'evaluator')"),
        ({"replicas": {"chief": 2}}, "Job: replicas['chief'] is 2; there can be only one"),
        ({"replicas": {"evaluator": 1}}, "Job: replicas is {'evaluator': 1}, which has no chief and no worker; add one"),
        ({"env": {"ESTIMATOR_RUNTIME_STOP_GRACE_SECS": "9"}}, "Job: env sets ESTIMATOR_RUNTIME_STOP_GRACE_SECS, which the launcher makes for each task; leave it out (grace_secs is the stop grace)"),
        ({"env": {"TF_CONFIG": "{}"}}, "Job: env sets TF_CONFIG, which the launcher makes for each task; leave it out (grace_secs is the stop grace)"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_is_one_line(change, message):
    with pytest.raises(ConfigError) as refusal:
        Job(**{"command": ("train.py",), "replicas": {"chief": 1}, **change})
    assert str(refusal.value) == message
