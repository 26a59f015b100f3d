"""What doctor says about devices and packages."""

import os
import pathlib
import re

import pytest

from estimator_runtime.cli.doctor.devices import compare
from estimator_runtime.cli.doctor.finding import Subject
from estimator_runtime.cli.doctor.packages import check_ray
from estimator_runtime.cli.doctor.probe import ProbeResult

CPU = {"name": "CPU:0", "type": "CPU", "details": {}}
GPU = {"name": "GPU:0", "type": "GPU", "details": {"device_name": "NVIDIA T4"}}
CORES = len(os.sched_getaffinity(0))
CPUS = f"{CORES} CPU {'core' if CORES == 1 else 'cores'}"
SETUP = (pathlib.Path(__file__).parents[3] / "setup.cfg").read_text()
OLDEST_RAY = re.search(r"^    ray>=(\S+)$", SETUP, re.M)[1]


@pytest.mark.parametrize(
    "found, machine, environ, state, text",
    [
        ([CPU], [], {}, "ok", f"{CPUS}, no GPU"),
        ([CPU, GPU], ["/dev/nvidia0"], {}, "ok", f"{CPUS}, GPU:0 (NVIDIA T4)"),
        (
            [CPU],
            ["/dev/nvidia0"],
            {},
            "problem",
            "/dev/nvidia0 is there, but TensorFlow sees no GPU; compare the driver of "
            "nvidia-smi with what this TensorFlow needs, or: pip install "
            "'tensorflow[and-cuda]'",
        ),
        (
            [CPU],
            ["/dev/nvidia0"],
            {"CUDA_VISIBLE_DEVICES": ""},
            "ok",
            f"{CPUS}, no GPU (CUDA_VISIBLE_DEVICES is '')",
        ),
    ],
)
def test_a_gpu_that_tensorflow_does_not_see_is_a_problem_unless_it_is_hidden(
    found, machine, environ, state, text
):
    answer = ProbeResult(
        devices=found, cuda=True, missing={}, of_version_1=[], patches={}
    )
    finding = compare(answer, environ, machine)
    assert (finding.state, finding.text) == (state, text)


@pytest.mark.parametrize(
    ("version", "state", "text"),
    [
        (OLDEST_RAY, "ok", f"ray {OLDEST_RAY}"),
        (
            "2.9.3",
            "note",
            "ray 2.9.3: older than what was tested; for jobs on Ray, pip install "
            f"'ray>={OLDEST_RAY}'",
        ),
    ],
)
def test_a_ray_is_held_against_the_oldest_that_was_tested(
    tmp_path, monkeypatch, version, state, text
):
    metadata = tmp_path / f"ray-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    [found] = check_ray(Subject(environ={}))
    assert (found.state, found.text) == (state, text)
