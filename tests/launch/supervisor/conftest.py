"""The state of a job whose tasks run, for tests of what is decided by it."""

import pytest

from estimator_runtime.launch import Job
from estimator_runtime.launch.supervisor.machine import JobState, TaskState
from estimator_runtime.launch.supervisor.restart_policy import Budget


@pytest.fixture
def job_of():
    """Return a function that gives (the state of a job, its tasks by name)."""

    def job_of(is_started=True, **arguments):
        job = Job(command=("train.py",), **arguments)
        states = {
            task: TaskState(task, Budget(job.max_restarts), task == job.trainers[0])
            for task in job.tasks
        }
        if is_started:
            for state in states.values():
                state.start(now=0.0)
        named = {str(task): state for task, state in states.items()}
        return JobState(job, states), named

    return job_of
