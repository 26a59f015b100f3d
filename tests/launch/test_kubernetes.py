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
_CLAIM_WARNING = """\
# `kubectl delete -f` with this file deletes the claim too, and the checkpoints with it.
# To stop the job, and before it is applied again, delete the JobSet only, and wait for
# its pods to save and go:
#   kubectl delete jobset train --cascade=foreground
# The claim stays Pending where its storage class cannot give ReadWriteMany.
"""


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


def _job_set(text):
    return list(yaml.safe_load_all(text))[-1]


@pytest.mark.parametrize("restarts, policy", [(0, "Never"), (1, "OnFailure")])
def test_a_task_beside_a_ps_may_be_started_again_as_often_as_it_says(
    capsys, restarts, policy
):
    count = 2
    text = _rendered(
        capsys, f"--workers={count}", "--ps=1", f"--max-restarts={restarts}"
    )
    jobs = {job["name"]: job for job in _job_set(text)["spec"]["replicatedJobs"]}
    worker = jobs["worker"]["template"]["spec"]
    assert worker["template"]["spec"]["restartPolicy"] == policy
    # A Job with OnFailure has failed once its containers were started again so often;
    # 0 is the exception: then it has after the first time.
    limit = worker["backoffLimit"]
    useful_restarts = limit - 1 if policy == "OnFailure" else limit
    assert useful_restarts == restarts * count


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


def _variables(pod):
    return {each["name"]: each for each in pod["containers"][0]["env"]}


def test_who_reads_the_manifests_is_told_how_to_keep_the_checkpoints(capsys):
    assert _rendered(capsys).startswith(_CLAIM_WARNING)


def test_an_existing_claim_is_mounted_and_is_not_in_the_file(capsys):
    text = _rendered(capsys, "--ps", "1", "--workers", "1", "--claim", "data.old")
    (job_set,) = yaml.safe_load_all(text)
    assert "#" not in text
    assert [pod["volumes"] for pod in _pods(job_set).values()] == [
        [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "data.old"}}]
    ] * 3


@pytest.mark.parametrize("option", ["--storage", "--storage-class"])
def test_an_existing_claim_is_not_described(capsys, option):
    assert main([*_WHERE, "--claim", "data", option, "1gi", *_PROGRAM]) == 1
    assert capsys.readouterr().err == (
        "estimator-runtime: error: the claim 'data' is one that exists; leave out "
        "--storage and --storage-class, or --claim to make one\n"
    )


@pytest.mark.parametrize("option", ["--claim", "--storage-class"])
@pytest.mark.parametrize("name", ["", "Data", "data-", "a/b"])
def test_a_name_that_nothing_in_kubernetes_has_is_one_line(capsys, option, name):
    assert main([*_WHERE, option, name, *_PROGRAM]) == 1
    assert capsys.readouterr().err == (
        f"estimator-runtime: error: {option} is {name!r}; give its name in the cluster, "
        "of small letters, digits, hyphens and points\n"
    )


def test_the_user_of_our_image_may_write_to_the_volume(capsys):
    (user,) = re.findall(r"useradd .*--gid (\d+) (\w+)", _DOCKERFILE.read_text())
    assert re.findall(r"groupadd --gid (\d+) (\w+)", _DOCKERFILE.read_text()) == [user]
    _, job_set = yaml.safe_load_all(_rendered(capsys))
    for pod in _pods(job_set).values():
        assert pod["securityContext"]["fsGroup"] == int(user[0])


def test_a_group_that_there_cannot_be_is_one_line(capsys):
    assert main([*_WHERE, "--fs-group", "-1", *_PROGRAM]) == 1
    assert capsys.readouterr().err == (
        "estimator-runtime: error: --fs-group is -1; give the number of a group\n"
    )


def test_sigterm_ends_who_has_no_handler_and_a_ps_stays_for_those_who_save():
    _, job_set = yaml.safe_load_all((_FOLDER / "ps.yaml").read_text())
    pods = _pods(job_set)
    # Process 1 of a namespace of its own would not be ended.
    assert all(pod["shareProcessNamespace"] for pod in pods.values())
    grace = {
        name: each["value"]
        for name, pod in pods.items()
        for variable, each in _variables(pod).items()
        if variable == "ESTIMATOR_RUNTIME_PS_GRACE_SECS"
    }
    assert grace == {"ps": str(pods["ps"]["terminationGracePeriodSeconds"] - 5)}


def test_the_pods_of_one_start_of_a_job_set_know_each_other_as_one_job():
    _, job_set = yaml.safe_load_all((_FOLDER / "ps.yaml").read_text())
    for pod in _pods(job_set).values():
        paths = {
            name: each["valueFrom"]["fieldRef"]["fieldPath"]
            for name, each in _variables(pod).items()
            if name.startswith("ESTIMATOR_RUNTIME_JOB")
        }
        assert paths == {
            "ESTIMATOR_RUNTIME_JOB": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
            "ESTIMATOR_RUNTIME_JOB_ATTEMPT": (
                "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
            ),
        }


@pytest.mark.parametrize("name", ["ps.yaml", "gang.yaml"])
def test_no_pod_is_made_anew_beside_an_old_one_that_still_saves(name):
    _, job_set = yaml.safe_load_all((_FOLDER / name).read_text())
    assert job_set["spec"]["failurePolicy"]["restartStrategy"] == "BlockingRecreate"
    for job in job_set["spec"]["replicatedJobs"]:
        assert job["template"]["spec"]["podReplacementPolicy"] == "Failed"


def test_a_part_of_a_gpu_is_refused(capsys):
    assert main([*_WHERE, "--gpus-per-worker", "0.5", *_PROGRAM]) == 1
    assert capsys.readouterr().err == (
        "estimator-runtime: error: a task takes 0.5 GPU, and Kubernetes assigns whole GPUs "
        "only; give a whole number with --gpus-per-worker\n"
    )


@pytest.mark.parametrize("name", ["Train", "1st", "a" * 41, "a-"])
def test_a_name_that_kubernetes_would_refuse_is_one_line(capsys, name):
    assert main([*_WHERE, "--name", name, *_PROGRAM]) == 1
    assert capsys.readouterr().err == (
        f"estimator-runtime: error: name is {name!r}; give one of at most 40 small "
        "letters, digits and hyphens, which begins with a letter: --name NAME\n"
    )


@pytest.mark.parametrize(
    ("options", "program", "told"),
    [
        ([], ["t\udcff.py"], r"'t\udcff.py'"),
        ([], ["train.py", "--x=\udcff"], r"'--x=\udcff'"),
        (["--storage", "1\udcffGi"], ["train.py"], r"'1\udcffGi'"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_one_line(capsys, options, program, told):
    assert main([*_WHERE, "--workers", "1", *options, *program]) == 1
    assert capsys.readouterr() == (
        "",
        f"estimator-runtime: error: {told} is not UTF-8, and a manifest can have no "
        "other text; rename the file, or give another argument\n",
    )
