"""The files by which `estimator-runtime ps` finds the jobs of a user."""

import dataclasses
import json
import math
import os
import stat

from estimator_runtime.launch import Job
from estimator_runtime.launch.local.process_tree import start_ticks_of
from estimator_runtime.launch.supervisor.job_file import (
    JobFile,
    folder_of_user,
    running_jobs,
)
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


def test_a_job_is_listed_until_its_file_is_removed(tmp_path):
    folder = str(tmp_path / "jobs")
    file = JobFile(JOB, "local", folder)
    assert running_jobs(folder) == []
    file.write(SEEN)
    assert running_jobs(folder) == [
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
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    file.remove()
    assert os.listdir(folder) == []


def test_a_loss_that_is_no_number_is_none_as_json_has_no_nan(tmp_path):
    chief = dataclasses.replace(CHIEF, loss=math.nan, metrics={"auc": math.inf})
    JobFile(JOB, "local", str(tmp_path)).write(
        dataclasses.replace(SEEN, tasks=(chief,))
    )
    (job,) = running_jobs(str(tmp_path))
    (task,) = job["tasks"]
    assert (task["loss"], task["metrics"]) == (None, {"auc": None})


def test_the_file_of_a_supervisor_that_was_killed_is_removed(tmp_path):
    folder = str(tmp_path / "jobs")
    file = JobFile(JOB, "local", folder)
    file.write(SEEN)
    (name,) = os.listdir(folder)
    path = os.path.join(folder, name)
    with open(path) as text:
        facts = json.load(text)
    assert facts["start_ticks"] == start_ticks_of(os.getpid())
    # Another process has that pid now.
    with open(path, "w") as text:
        json.dump({**facts, "start_ticks": facts["start_ticks"] - 1}, text)
    assert running_jobs(folder) == []
    assert os.listdir(folder) == []


def test_a_folder_that_others_can_write_is_neither_read_nor_written(tmp_path):
    folder = tmp_path / "jobs"
    folder.mkdir()
    folder.chmod(0o777)
    file = JobFile(JOB, "local", str(folder))
    file.write(SEEN)
    assert list(folder.iterdir()) == []
    (folder / "1-0.json").write_text("{}")
    assert running_jobs(str(folder)) == []


def test_a_file_that_is_none_of_ours_is_passed_over(tmp_path):
    tmp_path.chmod(0o700)
    for number, text in enumerate(["", "[]", "{}", '{"start_ticks": 1, "pid": "x"}']):
        (tmp_path / f"{number}.json").write_text(text)
    assert running_jobs(str(tmp_path)) == []


def test_the_folder_is_that_of_the_session_or_a_temporary_one(tmp_path):
    there = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert folder_of_user(there) == str(tmp_path / "estimator-runtime")
    elsewhere = folder_of_user({"XDG_RUNTIME_DIR": str(tmp_path / "none")})
    assert elsewhere.endswith(f"/estimator-runtime-{os.geteuid()}")
