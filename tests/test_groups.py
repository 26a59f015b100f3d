"""Tests of one group run on one worker, which makes their module's fixture once."""

import os
import re
import subprocess
import sys

_TESTS = """
import pytest

@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("number", range(6))
def test_of_ray(number):
    pass

@pytest.mark.parametrize("number", range(6))
def test_of_any_kind(number):
    pass
"""


def test_a_group_runs_on_one_worker(tmp_path):
    # pytest and pytest-xdist have to fit: 9.2 and 3.8.0 ignore the groups silently.
    (tmp_path / "test_few.py").write_text(_TESTS)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-n2",
            "--dist=loadgroup",
            "test_few.py",
        ],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    ran = r"^\[(gw\d)\] .*PASSED test_few.py::test_of_ray\["
    workers = re.findall(ran, result.stdout, re.MULTILINE)
    assert (len(workers), len(set(workers))) == (6, 1), result.stdout
