"""The benchmark of steps works and measures what it says; how fast is not tested."""

import json

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_benchmark):
    """The folder that a quick run has written."""
    folder = tmp_path_factory.mktemp("benchmarks")
    run_benchmark("steps", "--quick", "--output", "out", cwd=folder)
    return folder / "out"


@pytest.fixture(scope="module")
def report(folder):
    """The figures of a quick run."""
    return json.loads((folder / "steps.json").read_text())


def test_every_model_is_trained_in_its_ways(report):
    trained = {name: list(m["contenders"]) for name, m in report["models"].items()}
    assert trained == {
        "linear": _ALL,
        "dnn": _SOME,
        "cnn": _SOME,
        "wide_and_deep": _SOME,
    }
    assert (report["benchmark"], report["baseline"], report["quick"]) == (
        "steps",
        "stock",
        True,
    )


def test_the_table_is_written_and_can_be_printed_again(folder, tmp_path, run_benchmark):
    written = (folder / "steps.md").read_text()
    assert written.startswith("## steps (quick: the figures mean nothing)\n")
    assert run_benchmark("table", str(folder / "steps.json"), cwd=tmp_path) == written
