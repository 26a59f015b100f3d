"""Programs that run in processes of their own, in the folder of the test."""

import functools
import os

import pytest


@pytest.fixture
def run_program(run_python, tmp_path):
    """Return a function that runs Python as `run_python` does, and passes the mode on."""
    return functools.partial(
        run_python, "-W", "ignore", cwd=tmp_path, ESTIMATOR_RUNTIME_AUTO=None
    )


@pytest.fixture
def run_tf1(run_program):
    """Return a function that runs a script under `estimator-runtime run --tf1`."""
    return functools.partial(run_program, "-m", "estimator_runtime", "run", "--tf1")


@pytest.fixture
def python_path():
    """Return a function that returns a PYTHONPATH that begins with a folder."""
    inherited = os.environ.get("PYTHONPATH")
    return lambda folder: os.pathsep.join(filter(None, [str(folder), inherited]))
