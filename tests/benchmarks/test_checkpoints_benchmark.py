"""The benchmark of checkpoints: what it makes of the times of steps, and a quick run."""

import json
import pathlib

import pytest

from benchmarks.checkpoints import benchmark
from benchmarks.checkpoints.benchmark import Training

_ROOT = pathlib.Path(__file__).parents[2]


def test_the_step_that_saves_and_the_one_after_are_held_against_the_usual_one():
    training = Training(
        steps_secs=(5.0, 3.0, 1.0, 1.0, 4.0, 2.0, 1.5, 1.0), every=4, cpu_secs=9.0
    )
    assert training.wall_secs == 18.5
    assert training.usual_secs == 1.0
    assert training.beyond_usual(0) == [4.0, 3.0]
    assert training.beyond_usual(1) == [2.0, 1.0]


def test_the_loop_is_held_against_one_that_saves_nothing_in_the_same_round():
    def training(*steps, cpu_secs):
        return Training(steps_secs=steps, every=3, cpu_secs=cpu_secs)

    trainings = {
        "none, every 3 steps": [training(1.0, 1.0, 1.0, cpu_secs=4.0)],
        "stock, every 3 steps": [training(5.5, 1.0, 1.0, cpu_secs=12.0)],
        "ours, every 3 steps": [training(1.75, 1.0, 1.0, cpu_secs=8.0)],
    }
    figures = benchmark._figures(trainings, 3)
    assert {way: each["slowdown"]["median"] for way, each in figures.items()} == {
        "none": 0.0,
        "stock": 1.5,
        "ours": 0.25,
    }
    assert figures["stock"]["cpu_secs_per_save"]["median"] == 8.0 / benchmark._SAVES


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_benchmark):
    """The folder that a quick run has written."""
    folder = tmp_path_factory.mktemp("benchmarks")
    run_benchmark("checkpoints", "--quick", "--output", "out", cwd=folder)
    return folder / "out"


def test_a_quick_run_measures_each_size_and_cadence_in_all_ways(folder):
    report = json.loads((folder / "checkpoints.json").read_text())
    assert report["quick"] is True
    found = {
        (int(megabytes), int(every)): list(ways)
        for megabytes, size in report["sizes"].items()
        for every, ways in size["cadences"].items()
    }
    assert found == {
        (megabytes, every): ["none", "stock", "ours"]
        for megabytes, cadences in benchmark._QUICK_CADENCES.items()
        for every in cadences
    }
    for size in report["sizes"].values():
        for ways in size["cadences"].values():
            # Each save of a round has its figure.
            assert len(ways["ours"]["blocked_ms"]["rounds"]) == benchmark._SAVES


def test_the_table_has_a_row_for_each_way_to_save(folder):
    lines = (folder / "checkpoints.md").read_text().splitlines()
    assert lines[0] == "## checkpoints (quick: the figures mean nothing)"
    rows = [line.strip("| ").split(" | ")[:2] for line in lines if line[:2] == "| "]
    assert [[every.split(",")[0], way] for every, way in rows if every != "every"] == [
        [f"{every} steps", way]
        for cadences in benchmark._QUICK_CADENCES.values()
        for every in cadences
        for way in ("stock", "ours")
    ]
