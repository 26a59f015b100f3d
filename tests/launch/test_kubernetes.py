"""Manifests for Kubernetes: compared whole, and the TF_CONFIG that pods make of them."""

import json
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from estimator_runtime.cli import main
from estimator_runtime.launch import Job
from estimator_runtime.launch.kubernetes import KubernetesBackend
from estimator_runtime.tf_config import TFConfig

_FOLDER = Path(__file__).parent / "manifests"
_WHERE = ["render", "--backend", "kubernetes", "--image", "registry.example/train:1"]
_PROGRAM = ["train.py", "--model_dir=/checkpoints/model"]


@pytest.mark.parametrize(
    "name, options",
    [
        (
            "ps.yaml",
            ["--workers", "2", "--ps", "1", "--evaluator", "--cpus-per-worker", "4"],
        ),
        (
            "gang.yaml",
            [
                *("--workers", "3", "--no-chief", "--max-restarts", "5"),
                *("--gpus-per-worker", "2", "--name", "mirrored", "--storage", "1Ti"),
            ],
        ),
    ],
)
def test_a_job_is_rendered_as_these_manifests(capsys, name, options):
    assert main([*_WHERE, *options, *_PROGRAM]) == 0
    assert capsys.readouterr().out == (_FOLDER / name).read_text()


def test_every_pod_gets_a_tf_config_with_its_own_index():
    job = Job(
        command=_PROGRAM, replicas={"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}
    )
    text = KubernetesBackend(image="image", name="job").render(job)
    texts = [
        json.loads(each) for each in re.findall(r'value: (".*task.*")$', text, re.M)
    ]
    found = [
        TFConfig.from_environ({"TF_CONFIG": each.replace("$(TASK_INDEX)", str(index))})
        for each in texts
        for index in range(2 if '"type": "worker"' in each else 1)
    ]
    cluster = {
        "chief": ("job-chief-0-0.job:2222",),
        "worker": ("job-worker-0-0.job:2222", "job-worker-0-1.job:2222"),
        "ps": ("job-ps-0-0.job:2222",),
    }
    assert [(each.task_type, each.task_index) for each in found] == [
        *(("ps", 0), ("chief", 0), ("worker", 0), ("worker", 1), ("evaluator", 0))
    ]
    assert all(each.cluster == cluster for each in found)


@pytest.mark.parametrize("name", ["ps.yaml", "gang.yaml"])
def test_the_claim_and_each_job_are_what_kubernetes_takes(name):
    claim, job_set = yaml.safe_load_all((_FOLDER / name).read_text())
    # A template of a JobSet has the fields of a Job; JobSet's own schema is not there.
    jobs = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": job["name"]},
            **job["template"],
        }
        for job in job_set["spec"]["replicatedJobs"]
    ]
    for manifest in (claim, *jobs):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_the_manifests_are_yaml_that_means_what_was_rendered():
    claim, job_set = yaml.safe_load_all((_FOLDER / "ps.yaml").read_text())
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    jobs = {job["name"]: job["template"] for job in job_set["spec"]["replicatedJobs"]}
    assert list(jobs) == ["ps", "chief", "worker", "evaluator"]
    (container,) = jobs["worker"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["estimator-runtime", "run", "--", *_PROGRAM]
    assert container["resources"]["limits"] == {"cpu": "4"}
    assert container["env"][0]["value"] == "0"  # text, as Kubernetes wants it


def test_a_part_of_a_gpu_is_refused(capsys):
    assert main([*_WHERE, "--gpus-per-worker", "0.5", *_PROGRAM]) == 1
    assert capsys.readouterr().err == (
        "estimator-runtime: error: a task takes 0.5 GPU, and Kubernetes gives whole ones "
        "only; give a whole number with --gpus-per-worker\n"
    )


@pytest.mark.parametrize("name", ["Train", "1st", "a" * 41, "a-"])
def test_a_name_that_kubernetes_would_refuse_is_one_line(capsys, name):
    assert main([*_WHERE, "--name", name, *_PROGRAM]) == 1
    assert capsys.readouterr().err == (
        f"estimator-runtime: error: name is {name!r}; give one of at most 40 small "
        "letters, digits and hyphens, which begins with a letter: --name NAME\n"
    )
