"""What of a job is shown, by its environment and by what its tasks ask for."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch import Job, Resources
from estimator_runtime.launch.terminal.views import Presentation
from estimator_runtime.output import native_log


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr(native_log, "has_gpu", lambda: False)


def _job(**options):
    return Job(command=("train.py",), replicas={"chief": 1, "ps": 1}, **options)


def test_all_is_left_to_the_terminal_if_nobody_says_otherwise():
    assert Presentation.of(_job(), {}) == Presentation(
        progress="auto", is_verbose=False, expects_gpu=False
    )


def test_what_the_job_says_wins_over_the_environment():
    environ = {"ESTIMATOR_RUNTIME_PROGRESS": "bar", "ESTIMATOR_RUNTIME_VERBOSE": "1"}
    job = _job(env={"ESTIMATOR_RUNTIME_PROGRESS": "none"})
    assert Presentation.of(job, environ) == Presentation(
        progress="none", is_verbose=True, expects_gpu=False
    )


def test_a_gpu_is_expected_where_one_is_and_where_a_task_asks_for_one(monkeypatch):
    asks = _job(resources={"chief": Resources(cpus=1, gpus=1)})
    assert Presentation.of(asks, {}).expects_gpu
    monkeypatch.setattr(native_log, "has_gpu", lambda: True)
    assert Presentation.of(_job(), {}).expects_gpu


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ESTIMATOR_RUNTIME_PROGRESS", "ESTIMATOR_RUNTIME_PROGRESS is 'x'; give auto, bar, plain, none"),
        ("ESTIMATOR_RUNTIME_VERBOSE", "ESTIMATOR_RUNTIME_VERBOSE is 'x'; give 1 to see every line of TensorFlow's, or 0"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused(name, message):
    with pytest.raises(ConfigError) as refusal:
        Presentation.of(_job(), {name: "x"})
    assert str(refusal.value) == message
