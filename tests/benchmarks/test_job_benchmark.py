"""The benchmark of whole programs: what it runs, its table, and a quick run."""

import pytest

import estimator_runtime
from benchmarks.harness import processes

estimator_runtime.install()

_BASELINE = "stock" if processes.has_estimator() else "ours"


def _medians(contenders, key):
    return {name: figures[key]["median"] for name, figures in contenders.items()}


@pytest.mark.parametrize("quick_run", ["job"], indirect=True)
def test_a_quick_run_measures_an_example_and_single_rows_in_all_ways(quick_run):
    report, _ = quick_run
    assert report["baseline"] == _BASELINE
    ways = [*(["stock"] if _BASELINE == "stock" else []), "ours"]
    programs = {name: p["contenders"] for name, p in report["programs"].items()}
    assert {name: list(found) for name, found in programs.items()} == {
        "wide_and_deep": ways,
        "rows": [*ways, "predictor", "raw session"],
    }
    example, rows = programs["wide_and_deep"], programs["rows"]
    assert _medians(example, "evaluations") == dict.fromkeys(ways, 2)
    assert _medians(example, "exports") == dict.fromkeys(ways, 1)
    for figures in (*example.values(), *rows.values()):
        [wall], [imported], [after] = (
            figures[key]["rounds"]
            for key in ("wall_secs", "import_secs", "after_import_secs")
        )
        assert after == wall - imported
        assert figures["cpu_secs"]["median"] > 0.5
        # A process that has imported TensorFlow; in megabytes.
        assert 100 < figures["peak_mb"]["median"] < 10_000
    call_ms = _medians(rows, "call_ms")
    # Two calls of which one is the first: by the order only, and a wide margin.
    assert call_ms["predictor"] < call_ms["ours"] / 3
