"""Training jobs: start the tasks of a job, watch them, and return its outcome.

This package needs no TensorFlow. It shares with the tasks only TF_CONFIG, the command
line, the model directory and the reports that they send
(`estimator_runtime.reporting`).

    handle = get_backend("local").submit(
        Job(command=("train.py",), replicas={"chief": 1, "worker": 2, "ps": 1})
    )
    outcome = handle.wait(timeout_secs=3600)
"""

from estimator_runtime.launch.backend import Backend, JobHandle, get_backend
from estimator_runtime.launch.job import Job, Resources
from estimator_runtime.launch.outcome import Outcome

__all__ = ["Backend", "Job", "JobHandle", "Outcome", "Resources", "get_backend"]
