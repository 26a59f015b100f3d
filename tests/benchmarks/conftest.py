"""The benchmarks are not installed: they are found in the checkout."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# At the end: the package under test stays the one that is installed.
sys.path.append(str(ROOT))


@pytest.fixture(scope="session")
def run_benchmark(run_python):
    """Return a function that runs `python -m benchmarks`; it gives what that prints."""

    def run_benchmark(*arguments):
        # The checkout last, so that the runtime is the one that is installed.
        program = (
            "import sys, runpy\n"
            f"sys.path.append({str(ROOT)!r})\n"
            f"sys.argv = ['benchmarks', *{arguments!r}]\n"
            "runpy.run_module('benchmarks', run_name='__main__')\n"
        )
        done = run_python("-c", program, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_benchmark


@pytest.fixture(scope="session")
def quick_run(request, run_benchmark, tmp_path_factory):
    """Return the figures of a quick run of a benchmark, and the path of its table.

    The parameter is the name of the benchmark.
    """
    name, folder = request.param, tmp_path_factory.mktemp("benchmark")
    run_benchmark(name, "--quick", "--output", str(folder))
    report = json.loads((folder / f"{name}.json").read_text())
    assert (report["benchmark"], report["quick"]) == (name, True)
    return report, folder / f"{name}.md"
