"""The benchmark of clusters works and measures what it says; how fast is not tested."""

import json

import pytest

from benchmarks.training.models import CLUSTER_MODELS


@pytest.mark.long("starts three clusters, one after the other")
def test_a_step_is_measured_in_three_ways_with_the_cpu_time_of_the_ps(
    tmp_path, run_benchmark
):
    run_benchmark("cluster", "--quick", "--output", "out", cwd=tmp_path)
    report = json.loads((tmp_path / "out" / "cluster.json").read_text())
    (model,) = report["models"].values()
    assert list(model["contenders"]) == ["stock", "packed", "ours"]
    for figures in model["contenders"].values():
        assert figures["server_cpu_us_per_step"]["median"] >= 0
        assert figures["cpu_us_per_step"]["median"] > 0
    assert "CPU µs/step of the ps" in (tmp_path / "out" / "cluster.md").read_text()


def test_there_are_models_with_few_and_with_many_variables():
    assert list(CLUSTER_MODELS) == [
        "linear",
        "6 variables",
        "20 variables",
        "60 variables",
        "200 variables",
        "10 embeddings",
    ]
