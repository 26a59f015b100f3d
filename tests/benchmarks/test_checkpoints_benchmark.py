"""The benchmark of checkpoints: what it makes of the times of steps, and a quick run."""

import pytest

from benchmarks.checkpoints import benchmark


@pytest.mark.parametrize("quick_run", ["checkpoints"], indirect=True)
def test_a_quick_run_measures_each_size_and_cadence_in_all_ways(quick_run):
    report, _ = quick_run
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
