"""The benchmark of checkpoints: what it makes of the times of steps, and a quick run."""

import json

import pytest

from benchmarks.checkpoints import benchmark


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_benchmark):
    """The folder that a quick run has written."""
    folder = tmp_path_factory.mktemp("benchmarks")
    run_benchmark("checkpoints", "--quick", "--output", "out", cwd=folder)
    return folder / "out"


def test_a_quick_run_measures_each_size_and_cadence_in_all_ways(folder):
    report = json.loads((folder / "checkpoints.json").read_text())
    assert report["quick"] is True
    found = {
        (int(megabytes), int(every)): list(ways)
        for megabytes, size in report["sizes"].items()
        for every, ways in size["cadences"].items()
    }
    assert found == {
        (megabytes, every): ["none", "stock", "ours"]
        for megabytes, cadences in benchmark._QUICK_CADENCES.items()
        for every in cadences
    }
    for size in report["sizes"].values():
        for ways in size["cadences"].values():
            # Each save of a round has its figure.
            assert len(ways["ours"]["blocked_ms"]["rounds"]) == benchmark._SAVES
