"""Manifests for Kubernetes: compared whole, and the TF_CONFIG that pods make of them."""

import json
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from estimator_runtime.cli.main import main
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.launch import Job
from estimator_runtime.launch.backends.kubernetes import KubernetesRenderer

_FOLDER = Path(__file__).parent / "manifests"
_WHERE = ["render", "--backend", "kubernetes", "--image", "registry.example/train:1"]
_PROGRAM = ["train.py", "--model_dir=/checkpoints/model"]
_DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"


@pytest.mark.parametrize(
    "name, options",
    [
        (
            "ps.yaml",
            ["--workers", "2", "--ps", "1", "--cpus-per-worker", "4"],
        ),
        (
            "gang.yaml",
            [
                *("--workers", "3", "--no-chief", "--max-restarts", "5"),
                *("--gpus-per-worker", "2", "--name", "mirrored", "--storage", "1Ti"),
                *("--storage-class", "shared", "--fs-group", "0"),
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
    text = KubernetesRenderer(image="image", name="job").render(job)
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
def test_all_but_the_job_set_itself_is_what_kubernetes_takes(name):
    claim, policy, job_set = yaml.safe_load_all((_FOLDER / name).read_text())
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
    for manifest in (claim, policy, *jobs):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def _job_set(text):
    return list(yaml.safe_load_all(text))[-1]


def test_what_a_program_is_given_comes_there_as_it_is_written(capsys):
    argument = "--pattern=a$$b$(HOME)$c \U0001f600\u2028\x85"
    assert main([*_WHERE, *_PROGRAM, argument]) == 0
    (container,) = _pods(_job_set(capsys.readouterr().out))["chief"]["containers"]
    given = container["command"][-1]
    # As Kubernetes does: a pair is one dollar, and only $( begins a name.
    assert "$(" not in given.replace("$$", "")
    assert given.replace("$$", "$") == argument


def _rendered(capsys, *options):
    assert main([*_WHERE, *options, *_PROGRAM]) == 0
    return capsys.readouterr().out


def _pods(job_set):
    jobs = job_set["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}


def test_an_existing_claim_is_mounted_and_is_not_in_the_file(capsys):
    text = _rendered(capsys, "--ps", "1", "--workers", "1", "--claim", "data.old")
    _, job_set = yaml.safe_load_all(text)
    assert "#" not in text
    assert [pod["volumes"] for pod in _pods(job_set).values()] == [
        [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "data.old"}}]
    ] * 3


def test_the_user_of_our_image_may_write_to_the_volume(capsys):
    (user,) = re.findall(r"useradd .*--gid (\d+) (\w+)", _DOCKERFILE.read_text())
    assert re.findall(r"groupadd --gid (\d+) (\w+)", _DOCKERFILE.read_text()) == [user]
    job_set = _job_set(_rendered(capsys))
    for pod in _pods(job_set).values():
        assert pod["securityContext"]["fsGroup"] == int(user[0])


def test_every_pod_gets_the_fields_of_the_file_of_the_page(capsys, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "ray.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "pod.yaml").write_text(block)
    options = ["--workers=1", "--ps=1", f"--pod-spec={tmp_path / 'pod.yaml'}"]
    pods = _pods(_job_set(_rendered(capsys, *options)))
    plain = _pods(_job_set(_rendered(capsys, *options[:2])))
    assert pods == {name: {**plain[name], **yaml.safe_load(block)} for name in plain}
    for pod in pods.values():
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
        kubernetes_validate.validate({**manifest, "spec": pod}, "1.37", strict=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: [Errno 2] No such file or directory: {path!r}"),
        (
            "- a",
            "is no mapping; give fields of a pod's spec, such as 'nodeSelector: {{pool: "
            "train}}'",
        ),
        ("volumes: []", "has volumes, which is made for the job; leave it out"),
    ],
)
def test_a_bad_file_for_the_pods_is_one_line(capsys, tmp_path, text, problem):
    path = tmp_path / "pod.yaml"
    if text is not None:
        path.write_text(text)
    assert main([*_WHERE, "--pod-spec", str(path), *_PROGRAM]) == 1
    problem = problem.format(path=str(path))
    told = f"estimator-runtime: error: --pod-spec {str(path)!r} {problem}\n"
    assert capsys.readouterr() == ("", told)


_CLAIM = (
    "the claim 'data' is one that exists; leave out --storage and --storage-class, or "
    "--claim to make one"
)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--claim", "data", "--storage", "1Gi"], _CLAIM),
        (
            ["--name", "Train"],
            "name is 'Train'; give one of at most 40 small letters, digits and hyphens, "
            "which begins with a letter: --name NAME",
        ),
        (
            ["--gpus-per-worker", "0.5"],
            "a task takes 0.5 GPU, and Kubernetes assigns whole GPUs only; give a whole "
            "number with --gpus-per-worker",
        ),
    ],
)
def test_what_kubernetes_would_refuse_is_one_line(capsys, options, problem):
    assert main([*_WHERE, *options, *_PROGRAM]) == 1
    assert capsys.readouterr() == ("", f"estimator-runtime: error: {problem}\n")
