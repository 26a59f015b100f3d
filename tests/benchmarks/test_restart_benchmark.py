"""The benchmark of restarts: what its table says of figures, and a quick run."""

import pytest

from benchmarks.restart import benchmark


@pytest.mark.parametrize("quick_run", ["restart"], indirect=True)
def test_a_quick_run_restores_and_saves_each_size_in_all_ways(quick_run):
    report, _ = quick_run
    assert list(report["restarts"]) == [str(mb) for mb in benchmark._QUICK_MEGABYTES]
    for figures in report["restarts"].values():
        assert list(figures["restore"]) == ["stock", "ours"]
        assert list(figures["training"]) == ["none", "stock", "ours"]
        assert figures["restore"]["ours"]["secs"]["median"] > 0
        # A process that has imported TensorFlow; in megabytes.
        assert 100 < figures["training"]["none"]["peak_mb"]["median"] < 10_000
