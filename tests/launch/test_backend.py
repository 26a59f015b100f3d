"""Back ends, which packages register as entry points."""

import os

import pytest

from estimator_runtime.cli.main import main
from estimator_runtime.errors import ConfigError, UsageError
from estimator_runtime.launch import Job, get_backend

_BACKEND = """
from estimator_runtime.launch import Outcome


class Handle:
    def __init__(self, job):
        self.job = job

    def wait(self, timeout_secs=None):
        return Outcome(exit_status=7, reason=f"{len(self.job.tasks)} tasks have run")

    def has_ended(self, timeout_secs=0.0):
        return True

    def model_dir(self):
        return None


class TheirBackend:
    def __init__(self, console=None):
        self.console = console

    def submit(self, job):
        return Handle(job)
"""


@pytest.fixture
def their_package(tmp_path, monkeypatch):
    """Install a package that registers the back end "theirs", and one that is broken."""
    metadata = tmp_path / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[estimator_runtime.backends]\n"
        "theirs = their_backend:TheirBackend\n"
        "broken = no_such_module:Backend\n"
    )
    (tmp_path / "their_backend.py").write_text(_BACKEND)
    (tmp_path / "train.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    # The command hands its options on in the environment of this process.
    monkeypatch.setattr(os, "environ", dict(os.environ))


def test_a_back_end_of_another_package_runs_a_job(their_package):
    job = Job(command=("train.py",), replicas={"chief": 1, "worker": 2})
    outcome = get_backend("theirs").submit(job).wait()
    assert (outcome.exit_status, outcome.reason) == (7, "3 tasks have run")


def test_the_command_runs_a_job_on_it(their_package, capsys):
    assert main(["run", "--backend", "theirs", "--workers", "1", "train.py"]) == 7
    assert capsys.readouterr().err.startswith("estimator-runtime: 2 tasks have run")


@pytest.mark.parametrize(
    ("name", "error", "problem"),
    [
        (
            "kubernetes",
            UsageError,
            "there is no back end 'kubernetes'; there are broken, local, ray, theirs, or "
            "'estimator-runtime render'",
        ),
        (
            "broken",
            ConfigError,
            "back end 'broken' cannot be imported: No module named 'no_such_module'",
        ),
    ],
)
def test_a_back_end_that_cannot_be_had_is_named(their_package, name, error, problem):
    with pytest.raises(error) as refusal:
        get_backend(name)
    assert str(refusal.value) == problem
