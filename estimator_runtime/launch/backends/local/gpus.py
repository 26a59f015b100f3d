"""Divides the GPUs of this machine among the tasks of a local job.

By default a process of TensorFlow takes nearly all memory of each GPU that it sees. So
each task sees its own part: CUDA_VISIBLE_DEVICES is set before the task touches CUDA,
which the fork server never does.
"""

import glob
import itertools
from collections.abc import Callable, Mapping, Sequence

from estimator_runtime.config.role import TaskType
from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Job, Resources
from estimator_runtime.launch.task import Task

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_GROWTH_VARIABLE = "TF_FORCE_GPU_ALLOW_GROWTH"
_DEVICES = "/dev/nvidia[0-9]*"


def environ_of_tasks(
    job: Job,
    gpus_per_worker: float | None,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    devices: str = _DEVICES,
) -> dict[Task, dict[str, str]]:
    """Return the variables that show each task its GPUs.

    A value of CUDA_VISIBLE_DEVICES in `job.env` wins. That of this process is the list
    that is divided. Where tasks share a GPU, they allocate its memory as they need it.

    Args:
        job: The job.
        gpus_per_worker: The GPUs of the chief and each worker; a part for a GPU that
            several share. None gives each trainer one, in turn, and all to a single
            trainer, which may use them with a MirroredStrategy.
        environ: The environment of this process.
        say: Tells the user how the GPUs are divided.
        devices: A glob pattern of the device files of NVIDIA's driver, one for each
            GPU.

    Returns:
        Variables by task; none where there is no GPU.

    Raises:
        ConfigError: If this machine has fewer GPUs than the trainers need.
    """
    if _VARIABLE in job.env:
        return {}
    if gpus_per_worker == 0:
        return {task: {_VARIABLE: ""} for task in job.tasks}
    gpus = _visible(environ, devices)
    if not gpus and gpus_per_worker is None:
        return {}
    shares = _shares(job, gpus, gpus_per_worker)
    found = {task: {_VARIABLE: ",".join(share)} for task, share in shares.items()}
    text = ", ".join(f"{t}: {','.join(it) or 'none'}" for t, it in shares.items())
    used = [gpu for share in shares.values() for gpu in share]
    are_shared = len(set(used)) < len(used)
    if are_shared and _GROWTH_VARIABLE not in {**environ, **job.env}:
        text += f"; {_GROWTH_VARIABLE} is set, because tasks share one"
        for variables in found.values():
            variables[_GROWTH_VARIABLE] = "true"
    say(f"GPUs of the tasks: {text}")
    return found


def _visible(environ: Mapping[str, str], devices: str) -> list[str]:
    """Return the names of the GPUs that this process may use."""
    listed = environ.get(_VARIABLE)
    if listed is None:
        return [str(index) for index in range(len(glob.glob(devices)))]
    # CUDA ignores the first name that is none, such as -1, and all that follow.
    names = (name.strip() for name in listed.split(","))
    return list(itertools.takewhile(lambda name: name not in ("", "-1"), names))


def _shares(
    job: Job, gpus: Sequence[str], gpus_per_worker: float | None
) -> dict[Task, Sequence[str]]:
    """Return the GPUs of each task.

    The evaluator gets one that is left. Every ps stays on the CPU.
    """
    each = gpus_per_worker
    if each is None:
        each = len(gpus) if len(job.trainers) == 1 else 1
    size = max(1, int(Resources(gpus=each).gpus))  # which refuses what cannot be
    starts = [int(index * each) for index in range(len(job.trainers))]
    needed = starts[-1] + size
    if gpus_per_worker is not None and needed > len(gpus):
        raise ConfigError(
            f"{len(starts)} tasks train on {each:g} GPU each, which is {needed} GPU, "
            f"and this process sees {len(gpus)}; start fewer, or give a smaller "
            "--gpus-per-worker"
        )
    shares: dict[Task, Sequence[str]] = dict.fromkeys(job.tasks, ())
    for task, start in zip(job.trainers, starts, strict=True):
        shares[task] = [gpus[(start + i) % len(gpus)] for i in range(size)]
    for task in job.tasks:
        if task.type == TaskType.EVALUATOR:
            shares[task] = gpus[needed : needed + 1]
    return shares
