"""The devices that TensorFlow sees, compared with those of the machine."""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.cli.doctor.probe import ProbeResult
from estimator_runtime.errors import EstimatorRuntimeError


def check_devices(subject: Subject) -> Iterator[Finding]:
    """Check which devices TensorFlow sees.

    Raises:
        EstimatorRuntimeError: If TensorFlow cannot be imported.
    """
    answer = subject.tensorflow
    if isinstance(answer, EstimatorRuntimeError):
        raise answer
    if answer is None:
        yield Finding(NOTE, "TensorFlow was not asked: fix the other problems first")
        return
    nvidia = sorted(map(str, pathlib.Path("/dev").glob("nvidia[0-9]*")))
    yield compare(answer, subject.environ, nvidia)


def compare(
    answer: ProbeResult, environ: Mapping[str, str], nvidia_devices: Sequence[str]
) -> Finding:
    """Compare the devices of TensorFlow with the device files of NVIDIA GPUs."""
    gpus = [each for each in answer.devices if each["type"] == "GPU"]
    cores = len(os.sched_getaffinity(0))
    cpus = f"{cores} CPU {'core' if cores == 1 else 'cores'}"
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    if gpus:
        names = ", ".join(
            f"{each['name']} ({each['details'].get('device_name', 'unknown kind')})"
            for each in gpus
        )
        return Finding(OK, f"{cpus}, {names}, CUDA {answer.cuda}")
    if not nvidia_devices:
        return Finding(OK, f"{cpus}, no GPU")
    if hidden is not None:
        text = f"{cpus}, no GPU (CUDA_VISIBLE_DEVICES is {hidden!r})"
        return Finding(OK, text)
    text = (
        f"{nvidia_devices[0]} is there, but TensorFlow, built for CUDA {answer.cuda}, "
        "sees no GPU; pip install 'tensorflow[and-cuda]', and see nvidia-smi for the "
        "driver"
    )
    return Finding(PROBLEM, text)
