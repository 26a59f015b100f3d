"""What doctor says about devices."""

import os

import pytest

from estimator_runtime.cli.doctor.devices import _CUDA_LIBRARIES, compare
from estimator_runtime.cli.doctor.probe import ProbeResult

CPU = {"name": "CPU:0", "type": "CPU", "details": {}}
GPU = {"name": "GPU:0", "type": "GPU", "details": {"device_name": "NVIDIA T4"}}
CORES = len(os.sched_getaffinity(0))
CPUS = f"{CORES} CPU {'core' if CORES == 1 else 'cores'}"


@pytest.mark.parametrize(
    ("found", "loaded", "machine", "environ", "state", "text"),
    [
        ([CPU], [], [], {}, "ok", f"{CPUS}, no GPU"),
        (
            [CPU, GPU],
            _CUDA_LIBRARIES,
            ["/dev/nvidia0"],
            {},
            "ok",
            f"{CPUS}, GPU:0 (NVIDIA T4), CUDA 12.5.1",
        ),
        (
            [CPU],
            [each for each in _CUDA_LIBRARIES if each != "libcudnn"],
            ["/dev/nvidia0"],
            {},
            "problem",
            "/dev/nvidia0 is there, but TensorFlow sees no GPU; it did not find libcudnn "
            "for CUDA 12.5.1: pip install 'tensorflow[and-cuda]'",
        ),
        (
            [CPU],
            _CUDA_LIBRARIES,
            ["/dev/nvidia0"],
            {},
            "problem",
            "/dev/nvidia0 is there, but TensorFlow sees no GPU; it has loaded the "
            "libraries of CUDA 12.5.1, so the driver may be too old for it: update the "
            "driver, or install an older TensorFlow",
        ),
    ],
)
def test_a_gpu_that_tensorflow_does_not_see_is_a_problem_unless_it_is_hidden(
    found, loaded, machine, environ, state, text
):
    answer = ProbeResult(
        devices=found,
        cuda="12.5.1",
        loaded=loaded,
        missing={},
        of_version_1={},
        patches={},
        report="",
    )
    finding = compare(answer, environ, machine)
    assert (finding.state, finding.text) == (state, text)
