"""The benchmark of steps works and measures what it says; how fast is not tested."""

import pytest

import estimator_runtime

estimator_runtime.install()

_ALL = [
    "Session.run",
    "make_callable",
    "stock",
    "plans",
    "fused 10",
    "fused 100",
    "fused auto",
    "Keras 1",
    "Keras 10",
    "Keras 100",
]
_SOME = ["stock", "fused 10", "Keras 10"]


@pytest.mark.parametrize("quick_run", ["steps"], indirect=True)
def test_every_model_is_trained_in_its_ways(quick_run):
    report, _ = quick_run
    trained = {name: list(m["contenders"]) for name, m in report["models"].items()}
    assert trained == {
        "linear": _ALL,
        "dnn": _SOME,
        "cnn": _SOME,
        "wide_and_deep": _SOME,
    }
    assert report["baseline"] == "stock"


@pytest.mark.parametrize("quick_run", ["steps"], indirect=True)
def test_the_table_is_written_and_can_be_printed_again(quick_run, run_benchmark):
    _, table = quick_run
    written = table.read_text()
    assert written.startswith("## steps (quick: the figures mean nothing)\n")
    assert run_benchmark("table", str(table.with_suffix(".json"))) == written
