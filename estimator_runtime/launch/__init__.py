"""Starts the tasks of a training job, watches them, and says how it ended.

This half needs no TensorFlow. It meets the tasks in TF_CONFIG, in the command line,
in the model directory and in what they report (`estimator_runtime.reporting`).

    handle = get_backend("local").submit(
        Job(command=("train.py",), replicas={"chief": 1, "worker": 2, "ps": 1})
    )
    outcome = handle.wait(timeout_secs=3600)
"""

from estimator_runtime.launch.backend import Backend, JobHandle, get_backend
from estimator_runtime.launch.job import Job
from estimator_runtime.launch.outcome import Outcome
from estimator_runtime.launch.resources import Resources

__all__ = ["Backend", "Job", "JobHandle", "Outcome", "Resources", "get_backend"]
