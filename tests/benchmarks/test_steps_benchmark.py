"""The benchmark of steps works and measures what it says; how fast is not tested."""

import importlib.util
import json
import pathlib

import pytest
import tensorflow as tf

import estimator_runtime
from benchmarks.__main__ import main
from benchmarks.harness.measurement import Stamp
from benchmarks.steps import benchmark
from benchmarks.training import contenders
from benchmarks.training.contenders import Stopwatch, Window
from benchmarks.training.models import SIMPLE_MODELS

estimator_runtime.install()

_ROOT = pathlib.Path(__file__).parents[2]
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


def test_a_model_that_does_not_exist_is_refused():
    with pytest.raises(
        SystemExit,
        match="benchmarks steps: error: --models has no 'rnn'; give 'linear'",
    ):
        benchmark.measure(quick=True, announce=print, models=["rnn"])


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_rounds_that_measure_nothing_are_refused(rounds, capsys):
    with pytest.raises(SystemExit):
        main(["steps", f"--rounds={rounds}"])
    expected = f"argument --rounds: '{rounds}' is not a number of 1 or more"
    assert expected in capsys.readouterr().err


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


def test_every_figure_is_positive_and_has_its_spread_and_its_rounds(report):
    for model in report["models"].values():
        for contender in model["contenders"].values():
            figures = {k: v for k, v in contender.items() if k != "notes"}
            assert sorted(figures) == [
                "cpu_us_per_step",
                "ratio_to_baseline",
                "steps_per_sec",
                "wall_us_per_step",
            ]
            for figure in figures.values():
                assert 0 < figure["q1"] <= figure["median"] <= figure["q3"]
                assert len(figure["rounds"]) == 1
        assert model["contenders"]["stock"]["ratio_to_baseline"]["median"] == 1


def test_every_model_is_fused_although_it_is_timed(report):
    notes = [
        contender["notes"]
        for model in report["models"].values()
        for contender in model["contenders"].values()
    ]
    assert notes == [[] for _ in notes]


def test_the_table_is_written_and_can_be_printed_again(folder, tmp_path, run_benchmark):
    written = (folder / "steps.md").read_text()
    assert written.startswith("## steps (quick: the figures mean nothing)\n")
    assert run_benchmark("table", str(folder / "steps.json"), cwd=tmp_path) == written


def test_the_plot_is_drawn_where_matplotlib_is_installed(folder):
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    assert (folder / "steps.png").exists() == has_matplotlib


def test_stock_is_the_session_of_tensorflow_and_ours_that_of_the_runtime():
    from tensorflow_estimator.python.estimator import estimator

    def module_in_use():
        return estimator.training.MonitoredTrainingSession.__module__

    with contenders.stock_sessions():
        stock = module_in_use()
    assert (stock, module_in_use()) == (
        "tensorflow.python.training.monitored_session",
        "estimator_runtime.session.monitored_training_session",
    )


@pytest.mark.parametrize("steps_per_run", [1, 3, 100])
def test_the_stopwatch_stamps_two_steps_however_many_run_at_once(
    steps_per_run, tmp_path, monkeypatch
):
    stopwatch, model = Stopwatch(Window(warm_up=5, steps=8)), SIMPLE_MODELS["linear"]
    # It has counted the steps before the one that it is called after.
    monkeypatch.setattr(Stamp, "now", lambda: stopwatch.hook._iter_count + 1)
    config = tf.estimator.RunConfig(tmp_path, steps_per_run=steps_per_run)
    model.estimator(config).train(model.input_fn, steps=20, hooks=[stopwatch.hook])
    assert stopwatch.stamps == [5, 13]


def test_fused_steps_are_measured_after_enough_calls_that_end_on_hooks_steps():
    window = Window(warm_up=201, steps=500, warm_up_calls=40)
    assert [window.after_calls_of(k).warm_up for k in (1, 10, 100)] == [201, 401, 4001]
