"""A test with processes that fails runs once more, alone; see tests/plugins."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

PLUGINS = pathlib.Path(__file__).with_name("plugins")
_TESTS = """
import os
import pathlib
import pytest

def fails(name, times):
    runs = pathlib.Path(name)
    count = int(runs.read_text()) if runs.exists() else 0
    runs.write_text(str(count + 1))
    print("run", count + 1, "of", name)
    assert count >= times, f"{name} failed in run {count + 1}"

@pytest.mark.processes
@pytest.mark.xdist_group("group")
@pytest.mark.parametrize("name", ["a-1", "b-1", "c-1", "d-2"])
def test_of_processes(name):
    fails(name, int(name[-1]))

def test_of_unit():
    fails("unit", 1)

@pytest.mark.processes
def test_that_crashes():
    os._exit(1)
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs some of the tests: its exit status and its output."""
    (tmp_path / "test_few.py").write_text(_TESTS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = "second_chance"\n')
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {PLUGINS}\nmarkers = processes\n"
    )
    program = pathlib.Path(sys.executable).with_name("pytest")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}

    def run(selected, *options):
        done = subprocess.run(
            [program, "test_few.py", "-k", selected, *options],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize("options", [(), ("-n2", "--dist=loadgroup")])
def test_one_that_passes_then_counts_as_passed_and_is_shown_with_both_outputs(
    run, options
):
    status, output = run("a-1 or b-1", *options)
    assert status == 0, output
    titles = re.findall(r"FLAKY: test_few.py::test_of_processes\[(.-1)\]", output)
    assert sorted(titles) == ["a-1", "b-1"]
    for name in titles:
        assert f"AssertionError: {name} failed in run 1" in output
        assert f"run 1 of {name}" in output
    assert output.count("second run, alone") == 2
    assert output.count("= 1 passed") == 2 and "2 flaky" in output.splitlines()[-1]
    assert "FAILURES" not in output


def test_one_that_fails_twice_fails_the_run(run):
    status, output = run("a-1 or d-2")
    assert status == 1, output
    assert "FLAKY: test_few.py::test_of_processes[a-1]" in output
    assert "FAILED TWICE: test_few.py::test_of_processes[d-2]" in output
    assert "d-2 failed in run 1" in output and "d-2 failed in run 2" in output
    assert output.splitlines()[-1].startswith("=") and "1 failed" in output


@pytest.mark.parametrize(
    "selected, options, reason",
    [
        ("a-1 or b-1 or c-1", (), "3 have failed"),
        ("a-1 or unit", (), "a test without processes, or a worker, has failed"),
        (
            "a-1 or crashes",
            ("-n2",),
            "a test without processes, or a worker, has failed",
        ),
        ("a-1", ("-n2", "test_broken.py"), "not all tests have run"),
    ],
)
def test_there_is_none_where_the_run_fails_anyway(
    run, tmp_path, selected, options, reason
):
    (tmp_path / "test_broken.py").write_text("import a_module_that_is_not_there")
    status, output = run(selected, *options)
    assert status == 1
    assert f"if nothing else has failed: {reason}.\n" in output
    assert "run 2 of" not in output and "second run" not in output
