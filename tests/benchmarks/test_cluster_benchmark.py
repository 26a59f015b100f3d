"""The benchmark of clusters works and measures what it says; how fast is not tested."""

import pytest


@pytest.mark.parametrize("quick_run", ["cluster"], indirect=True)
def test_a_step_is_measured_in_three_ways_with_the_cpu_time_of_the_ps(quick_run):
    report, table = quick_run
    (model,) = report["models"].values()
    assert list(model["contenders"]) == ["stock", "ours", "not packed"]
    for figures in model["contenders"].values():
        assert figures["server_cpu_us_per_step"]["median"] >= 0
        assert figures["cpu_us_per_step"]["median"] > 0
    assert "CPU µs/step of the ps" in table.read_text()
