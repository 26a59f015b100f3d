"""The devices that TensorFlow sees, compared with those of the machine."""

import os
import pathlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding, Subject
from estimator_runtime.cli.doctor.probe import ProbeResult
from estimator_runtime.errors import EstimatorRuntimeError

_NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,driver_version",
    "--format=csv,noheader",
)
_NVIDIA_SMI_SECS = 20.0
# TensorFlow registers no GPU unless it can load all of these.
_CUDA_LIBRARIES = (
    "libcudart",
    "libcublas",
    "libcublasLt",
    "libcufft",
    "libcusolver",
    "libcusparse",
    "libcudnn",
)


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
    if nvidia:
        yield _driver()


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
    text = f"{nvidia_devices[0]} is there, but TensorFlow sees no GPU; {_cause(answer)}"
    return Finding(PROBLEM, text)


def _cause(answer: ProbeResult) -> str:
    """Return why TensorFlow sees no GPU, and the remedy."""
    remedy = "pip install 'tensorflow[and-cuda]'"
    if answer.cuda is None:
        return f"this TensorFlow was built without CUDA: {remedy}"
    missing = [name for name in _CUDA_LIBRARIES if name not in answer.loaded]
    if len(missing) == len(_CUDA_LIBRARIES):
        return (
            "it has loaded no CUDA library: either the driver does not answer (see "
            f"nvidia-smi), or they are not installed: {remedy}"
        )
    if missing:
        return f"it did not find {', '.join(missing)} for CUDA {answer.cuda}: {remedy}"
    return (
        f"it has loaded the libraries of CUDA {answer.cuda}, so the driver may be too "
        "old for it: update the driver, or install an older TensorFlow"
    )


def _driver() -> Finding:
    """Return what the driver says about the GPUs of this machine."""
    try:
        done = subprocess.run(
            _NVIDIA_SMI, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(NOTE, f"nvidia-smi gives no answer: {error}")
    lines = (done.stdout or done.stderr).strip().splitlines()
    text = "; ".join(lines) or f"nvidia-smi says nothing, with status {done.returncode}"
    if done.returncode:
        return Finding(PROBLEM, f"the NVIDIA driver does not work: {text}")
    return Finding(OK, f"name, memory and driver of each GPU: {text}")
