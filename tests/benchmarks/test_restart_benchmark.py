"""The benchmark of restarts: what its table says of figures, and a quick run."""

import json

import pytest

from benchmarks.restart import benchmark


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_benchmark):
    """The folder that a quick run has written."""
    folder = tmp_path_factory.mktemp("benchmarks")
    run_benchmark("restart", "--quick", "--output", "out", cwd=folder)
    return folder / "out"


def test_a_quick_run_restores_and_saves_each_size_in_all_ways(folder):
    report = json.loads((folder / "restart.json").read_text())
    assert report["quick"] is True
    assert list(report["restarts"]) == [str(mb) for mb in benchmark._QUICK_MEGABYTES]
    for figures in report["restarts"].values():
        assert list(figures["restore"]) == ["stock", "ours"]
        assert list(figures["training"]) == ["none", "stock", "ours"]
        assert figures["restore"]["ours"]["secs"]["median"] > 0
        # A process that has imported TensorFlow; in megabytes.
        assert 100 < figures["training"]["none"]["peak_mb"]["median"] < 10_000
