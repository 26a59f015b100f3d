"""What doctor says about devices."""

import os

import pytest

from estimator_runtime.cli.doctor.devices import compare
from estimator_runtime.cli.doctor.probe import ProbeResult

CPU = {"name": "CPU:0", "type": "CPU", "details": {}}
GPU = {"name": "GPU:0", "type": "GPU", "details": {"device_name": "NVIDIA T4"}}
CORES = len(os.sched_getaffinity(0))
CPUS = f"{CORES} CPU {'core' if CORES == 1 else 'cores'}"


@pytest.mark.parametrize(
    ("found", "machine", "environ", "state", "text"),
    [
        ([CPU], [], {}, "ok", f"{CPUS}, no GPU"),
        (
            [CPU, GPU],
            ["/dev/nvidia0"],
            {},
            "ok",
            f"{CPUS}, GPU:0 (NVIDIA T4), CUDA 12.5.1",
        ),
        (
            [CPU],
            ["/dev/nvidia0"],
            {"CUDA_VISIBLE_DEVICES": "-1"},
            "ok",
            f"{CPUS}, no GPU (CUDA_VISIBLE_DEVICES is '-1')",
        ),
        (
            [CPU],
            ["/dev/nvidia0"],
            {},
            "problem",
            "/dev/nvidia0 is there, but TensorFlow, built for CUDA 12.5.1, sees no GPU; "
            "pip install 'tensorflow[and-cuda]', and see nvidia-smi for the driver",
        ),
    ],
)
def test_a_gpu_that_tensorflow_does_not_see_is_a_problem_unless_it_is_hidden(
    found, machine, environ, state, text
):
    answer = ProbeResult(
        devices=found,
        cuda="12.5.1",
        missing={},
        of_version_1={},
        patches={},
        report="",
    )
    finding = compare(answer, environ, machine)
    assert (finding.state, finding.text) == (state, text)
