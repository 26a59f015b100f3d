"""The files by which `estimator-runtime ps` finds the jobs of a user."""

import dataclasses
import math
import os
import resource

import pytest

from estimator_runtime.launch import Job
from estimator_runtime.launch.job_file import JobFile, running_jobs
from estimator_runtime.launch.terminal.job_status import JobStatus, TaskStatus

CHIEF = TaskStatus(name="chief", step=7, rate=2.5, loss=0.5, pid=4711, log="/m/c.log")
SEEN = JobStatus(
    elapsed_secs=3.0,
    step=7,
    last_step=10,
    rate=2.5,
    saved_step=5,
    restarts=1,
    tasks=(CHIEF,),
    model_dir="/m",
)
JOB = Job(command=("train.py",), replicas={"chief": 1})
# In a process of its own; it lists jobs, and says only which steps those of one pid have.
LIST = """
import sys
from estimator_runtime.launch.job_file import running_jobs
print([job["step"] for job in running_jobs() if job["pid"] == int(sys.argv[1])])
"""


def jobs_here():
    return [job for job in running_jobs() if job["pid"] == os.getpid()]


@pytest.fixture
def file():
    file = JobFile(JOB, "local")
    yield file
    file.remove()


def test_a_job_is_listed_until_its_file_is_removed(file):
    assert jobs_here() == []
    file.write(dataclasses.replace(SEEN, step=6))
    file.write(SEEN)
    assert jobs_here() == [
        {
            "pid": os.getpid(),
            "command": ["train.py"],
            "backend": "local",
            "folder": os.getcwd(),
            "elapsed_secs": 3.0,
            "step": 7,
            "last_step": 10,
            "rate": 2.5,
            "saved_step": 5,
            "restarts": 1,
            "model_dir": "/m",
            "hidden_warnings": 0,
            "tasks": [
                {
                    "name": "chief",
                    "state": None,
                    "step": 7,
                    "rate": 2.5,
                    "loss": 0.5,
                    "metrics": {},
                    "best_metric": None,
                    "pid": 4711,
                    "restarts": 0,
                    "log": "/m/c.log",
                }
            ],
        }
    ]
    file.remove()
    assert jobs_here() == []


def test_a_job_is_listed_in_any_session_of_its_user(file, run_python, tmp_path):
    """Under cron or su, and after a logout, other folders are those of the session."""
    file.write(SEEN)
    elsewhere = {"TMPDIR": str(tmp_path), "HOME": "/nonexistent"}
    for folder in (None, str(tmp_path)):
        variables = {**elsewhere, "XDG_RUNTIME_DIR": folder}
        done = run_python("-c", LIST, os.getpid(), **variables)
        assert done.stdout == "[7]\n", done.stderr


def test_a_loss_that_is_no_number_is_none_as_json_has_no_nan(file):
    chief = dataclasses.replace(CHIEF, loss=math.nan, metrics={"auc": math.inf})
    file.write(dataclasses.replace(SEEN, tasks=(chief,)))
    (job,) = jobs_here()
    (task,) = job["tasks"]
    assert (task["loss"], task["metrics"]) == (None, {"auc": None})


def test_a_job_goes_on_unlisted_where_no_file_may_be_written(file):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # as ulimit -f 0 does
    try:
        file.write(SEEN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert jobs_here() == []
