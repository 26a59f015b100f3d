"""The benchmark of restarts: what its table says of figures, and a quick run."""

import json

import pytest

from benchmarks.restart import benchmark
from benchmarks.restart import report as restart_report


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


def test_the_table_compares_ways_within_a_round(folder):
    def rounds(*values):
        return {"median": 0, "q1": 0, "q3": 0, "rounds": list(values)}

    report = json.loads((folder / "restart.json").read_text())
    report["restarts"] = {
        "7": {
            "restore": {
                "stock": {
                    "secs": rounds(1, 2, 4),
                    "cpu_secs": rounds(1, 1, 1),
                    "peak_mb": rounds(1, 1, 1),
                },
                "ours": {
                    "secs": rounds(1, 3, 2),
                    "cpu_secs": rounds(1, 1, 1),
                    "peak_mb": rounds(1, 1, 1),
                },
            },
            "training": {
                "none": {"peak_mb": rounds(10, 20, 30)},
                "stock": {"peak_mb": rounds(11, 22, 33)},
                "ours": {"peak_mb": rounds(10, 20, 30)},
            },
        }
    }
    stock, ours = restart_report.render(report).splitlines()[-2:]
    assert ours.split(" | ")[3] == "1.00 (0.75 to 1.25)"
    assert stock.split(" | ")[-1] == "2 (2 to 2) |"
    assert ours.split(" | ")[-1] == "0 (0 to 0) |"


def test_nothing_restored_is_no_figure(tmp_path):
    with pytest.raises(RuntimeError, match="nothing has been restored"):
        benchmark.restore("stock", 1, str(tmp_path))
