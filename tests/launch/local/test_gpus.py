"""How the GPUs of a machine are divided among the tasks of a local job."""

import tempfile

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch import Job
from estimator_runtime.launch.backends.local import gpus

_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"


def _job(workers=1, ps=0, evaluator=0, **env):
    replicas = {"chief": 1, "worker": workers, "ps": ps, "evaluator": evaluator}
    return Job(command=("train.py",), replicas=replicas, env=env)


def _divide(job, count=0, per_worker=None, environ=None):
    """Return the GPUs of each task, and what the user is told."""
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for index in range(count):
            open(f"{folder}/nvidia{index}", "x").close()
        open(f"{folder}/nvidiactl", "x").close()  # which is no GPU
        found = gpus.environ_of_tasks(
            job, per_worker, environ or {}, said.append, f"{folder}/nvidia[0-9]*"
        )
    visible = {str(task): it["CUDA_VISIBLE_DEVICES"] for task, it in found.items()}
    assert len({it.get(_GROWTH) for it in found.values()}) <= 1
    growth = {it.get(_GROWTH) for it in found.values()} - {None}
    return visible, growth, said


@pytest.mark.parametrize(
    ("count", "per_worker", "visible"),
    [
        (2, None, {"chief": "0", "worker 0": "1", "evaluator": ""}),
        (3, None, {"chief": "0", "worker 0": "1", "evaluator": "2"}),
        (5, 2, {"chief": "0,1", "worker 0": "2,3", "evaluator": "4"}),
        (2, 0, {"chief": "", "worker 0": "", "evaluator": ""}),
    ],
)
def test_each_trainer_gets_its_own_and_an_evaluator_what_is_left(
    count, per_worker, visible
):
    job = _job(ps=1, evaluator=1)
    assert _divide(job, count, per_worker)[:2] == ({"ps 0": "", **visible}, set())


def test_a_single_trainer_gets_all():
    job = _job(workers=0, evaluator=1)
    assert _divide(job, 3)[0] == {"chief": "0,1,2", "evaluator": ""}
    assert _divide(job, 3, per_worker=1)[0] == {"chief": "0", "evaluator": "1"}


def test_trainers_that_share_a_gpu_take_its_memory_as_they_need_it():
    assert _divide(_job(workers=2, ps=1), count=2) == (
        {"ps 0": "", "chief": "0", "worker 0": "1", "worker 1": "0"},
        {"true"},
        [
            "GPUs of the tasks: ps 0: none, chief: 0, worker 0: 1, worker 1: 0; "
            "TF_FORCE_GPU_ALLOW_GROWTH is set, because tasks share one"
        ],
    )
    visible, growth, _ = _divide(_job(workers=3), count=2, per_worker=0.5)
    assert list(visible.values()) == ["0", "0", "1", "1"]
    assert growth == {"true"}


def test_what_the_user_says_about_memory_stays():
    said = {_GROWTH: "false"}
    assert _divide(_job(), count=1, environ=said)[1] == set()
    assert _divide(_job(**said), count=1)[1] == set()


@pytest.mark.parametrize(
    ("listed", "visible"),
    [
        ("3,1", ["3", "1"]),
        ("GPU-8932f937, MIG-a/1/0", ["GPU-8932f937", "MIG-a/1/0"]),
        ("5", ["5", "5"]),
        ("2,-1,3", ["2", "2"]),
    ],
)
def test_the_list_of_the_launcher_is_what_is_divided(listed, visible):
    environ = {"CUDA_VISIBLE_DEVICES": listed}
    assert list(_divide(_job(), count=8, environ=environ)[0].values()) == visible


@pytest.mark.parametrize("environ", [None, {"CUDA_VISIBLE_DEVICES": "-1"}])
def test_without_a_gpu_nothing_is_set_or_said(environ):
    assert _divide(_job(), environ=environ) == ({}, set(), [])


def test_a_list_for_the_tasks_wins():
    assert _divide(_job(CUDA_VISIBLE_DEVICES="7"), count=2) == ({}, set(), [])


@pytest.mark.parametrize(
    ("count", "per_worker", "problem"),
    [
        (
            3,
            2,
            "2 tasks train on 2 GPU each, which is 4 GPU, and this process sees 3; start "
            "fewer, or give a smaller --gpus-per-worker",
        ),
        (
            0,
            0.5,
            "2 tasks train on 0.5 GPU each, which is 1 GPU, and this process sees 0; "
            "start fewer, or give a smaller --gpus-per-worker",
        ),
        (
            8,
            1.5,
            "a task takes 1.5 GPU; give a whole number with --gpus-per-worker, or less "
            "than 1",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(count, per_worker, problem):
    with pytest.raises(ConfigError) as refusal:
        _divide(_job(), count, per_worker)
    assert str(refusal.value) == problem
