"""The benchmarks are not installed: they are found in the checkout."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# At the end: the package under test stays the one that is installed.
sys.path.append(str(ROOT))


@pytest.fixture(scope="session")
def run_benchmark():
    """Return a function that runs `python -m benchmarks`; it gives what that prints."""

    def run_benchmark(*arguments, cwd):
        # The checkout last, so that the runtime is the one that is installed.
        program = (
            "import sys, runpy\n"
            f"sys.path.append({str(ROOT)!r})\n"
            f"sys.argv = ['benchmarks', *{arguments!r}]\n"
            "runpy.run_module('benchmarks', run_name='__main__')\n"
        )
        result = subprocess.run(
            [sys.executable, "-c", program],
            cwd=cwd,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run_benchmark
