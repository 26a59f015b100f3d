"""What of a job is shown, by its environment and by what its tasks ask for."""

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch import Job
from estimator_runtime.launch.terminal.views import Presentation


def _job(**options):
    return Job(command=("train.py",), replicas={"chief": 1, "ps": 1}, **options)


def test_all_is_left_to_the_terminal_if_nobody_says_otherwise():
    assert Presentation.of(_job(), {}) == Presentation(
        progress="auto", is_verbose=False
    )


def test_what_the_job_says_wins_over_the_environment():
    environ = {"ESTIMATOR_RUNTIME_PROGRESS": "bar", "ESTIMATOR_RUNTIME_VERBOSE": "1"}
    job = _job(env={"ESTIMATOR_RUNTIME_PROGRESS": "none"})
    assert Presentation.of(job, environ) == Presentation(
        progress="none", is_verbose=True
    )


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
