"""Programs that run in processes of their own, in the folder of the test."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def run_program(tmp_path):
    """Return a function that runs Python with arguments; it returns the ended process.

    The program has none of the options of this process, but the variables that are given.
    """

    def run_program(*command, **variables):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ESTIMATOR_RUNTIME", "TF_"))
        }
        return subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            cwd=tmp_path,
            env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run_program


@pytest.fixture
def run_tf1(run_program):
    """Return a function that runs a script under `estimator-runtime run --tf1`."""
    command = ("-m", "estimator_runtime", "run", "--tf1")
    return lambda *arguments, **variables: run_program(
        *command, *arguments, **variables
    )


@pytest.fixture
def python_path():
    """Return a function that returns a PYTHONPATH that begins with a folder."""
    inherited = os.environ.get("PYTHONPATH")
    return lambda folder: os.pathsep.join(filter(None, [str(folder), inherited]))
