"""What doctor says about devices."""

import os

import pytest

from estimator_runtime.cli.doctor.environment import compare

CORES = len(os.sched_getaffinity(0))
CPUS = f"{CORES} CPU {'core' if CORES == 1 else 'cores'}"


@pytest.mark.parametrize(
    ("devices", "has_nvidia", "environ", "state", "text"),
    [
        (["CPU:0"], False, {}, "ok", f"{CPUS}, no GPU"),
        (["CPU:0", "GPU:0"], True, {}, "ok", f"{CPUS}, GPU:0"),
        (["CPU:0"], True, {"CUDA_VISIBLE_DEVICES": ""}, "ok", f"{CPUS}, no GPU"),
        (
            ["CPU:0"],
            True,
            {},
            "problem",
            f"{CPUS}, and a GPU that TensorFlow does not see: nvidia-smi says whether "
            "its driver works, and pip install 'tensorflow[and-cuda]' adds the CUDA "
            "libraries",
        ),
    ],
)
def test_a_gpu_that_tensorflow_does_not_see_is_a_problem_unless_it_is_hidden(
    devices, has_nvidia, environ, state, text
):
    finding = compare(devices, environ, has_nvidia)
    assert (finding.state, finding.text) == (state, text)
