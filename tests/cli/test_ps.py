"""What `estimator-runtime ps` says of a job."""

import dataclasses

from estimator_runtime.cli import ps
from estimator_runtime.launch.terminal.job_status import JobStatus, TaskStatus


def test_each_task_is_a_row_with_what_it_does():
    seen = JobStatus(
        elapsed_secs=3.0,
        step=70,
        last_step=100,
        rate=2.5,
        saved_step=50,
        restarts=1,
        tasks=(
            TaskStatus(name="ps 0", state="running", pid=10, log="/m/ps.log"),
            TaskStatus(name="chief", step=70, rate=2.5, pid=11, log="/m/c.log"),
            TaskStatus(name="evaluator", metrics={"global_step": 50.0, "loss": 0.5}),
        ),
        model_dir="/m",
    )
    job = {"pid": 9, "backend": "local", "command": ["my train.py", "--fast"]}
    assert ps.as_text({**job, **dataclasses.asdict(seen)}).splitlines() == [
        "job 9 (local): 'my train.py' --fast",
        "  model directory /m, step 70 of 100, checkpoint step 50, restarts 1",
        "  task       pid  step  steps/s  restarts  state              log",
        "  ps 0       10   -     -        0         running            /m/ps.log",
        "  chief      11   70    2.5      0         training           /m/c.log",
        "  evaluator  -    -     -        0         evaluated step 50  -",
    ]
