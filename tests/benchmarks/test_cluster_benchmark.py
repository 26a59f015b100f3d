"""The benchmark of clusters works and measures what it says; how fast is not tested."""

import json

import pytest


@pytest.mark.long("starts three clusters, one after the other")
def test_a_step_is_measured_in_three_ways_with_the_cpu_time_of_the_ps(
    tmp_path, run_benchmark
):
    run_benchmark("cluster", "--quick", "--output", "out", cwd=tmp_path)
    report = json.loads((tmp_path / "out" / "cluster.json").read_text())
    (model,) = report["models"].values()
    assert list(model["contenders"]) == ["stock", "ours", "not packed"]
    for figures in model["contenders"].values():
        assert figures["server_cpu_us_per_step"]["median"] >= 0
        assert figures["cpu_us_per_step"]["median"] > 0
    assert "CPU µs/step of the ps" in (tmp_path / "out" / "cluster.md").read_text()
