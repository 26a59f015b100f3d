"""The benchmark of somebody's own training: its choice, its errors, and a real run."""

import importlib.util
import json
import os
import re
import sys

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.cadence import benchmark, cost
from benchmarks.cadence import report as cadence_report
from benchmarks.cadence.report import Training

SCRIPT = """
import sys
import tensorflow as tf

def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=[0.0] * 1000)
    loss = tf.reduce_mean(tf.square(weight - 1.0))
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

def input_fn():
    return tf.data.Dataset.from_tensors((1.0, 1.0)).repeat()

config = tf.estimator.RunConfig("models/mine", save_checkpoints_steps=2)
estimator = tf.estimator.Estimator(model_fn, config=config)
estimator.train(input_fn, max_steps=int(sys.argv[1]))
print("trained")
"""


def run(script, *options):
    """Return the exit status of the command, run in this process."""
    return benchmarks.main(["cadence", *options, "--script", *script])


@pytest.mark.parametrize(
    ("steps", "cadences"),
    [
        (1, [1]),
        (7, [1]),
        (12, [3, 1]),
        (199, [30, 10, 3]),
        (9_000, [1000, 300, 100]),
        (12_000, [3000, 1000, 300]),
    ],
)
def test_cadences_are_round_numbers_of_which_four_fit_into_a_run(steps, cadences):
    assert benchmark.choose_cadences(steps) == cadences


def training(step_secs, *, every=None, secs=10.0):
    """Return a run of which 0.5 s a checkpoint are noted."""
    steps = round(secs / step_secs)
    saved = range(0, steps + 1, every) if every else (0, steps)
    return Training(
        first_step=0,
        steps=steps,
        secs=steps * step_secs,
        saves=tuple((step, 1e6, 0.25, 0.25) for step in saved),
    )


def told(step_secs, none=(0.1,), pilot=0.1):
    """Return the figures of runs whose steps took so long, by cadence and round."""
    found = {"none": [training(each) for each in none]}
    for every, rounds in step_secs.items():
        found[str(every)] = [training(each, every=every) for each in rounds]
    return cadence_report.figures(found, 1.0, 1 / pilot)


def rendered(figures):
    """Return the report of some figures."""
    package = {"tensorflow": "2.21.0"}
    machine = dict.fromkeys(["date", "cpu", "cpus", "memory_gb", "system", "python"])
    machine |= {"load_average_at_start": 0.0, "packages": package}
    report = {"benchmark": "cadence", "baseline": "none", "quick": False, "secs": 10.0}
    report |= {"machine": machine | {"estimator_runtime": "1"}, "script": ["x.py"]}
    return cadence_report.render(report | figures)


def test_the_interval_that_loses_least_is_chosen_and_the_loss_named():
    figures = told({50: [0.11]})
    # The root of 2 * 0.5 s * 3600 s is 60 s.
    assert figures["advice"] == {
        "interval_secs": 60,
        "interval_steps": 600,
        "checkpoints_part": 0.5 / 60,
        "lost_part": 0.5 / 60 + 60 / 7200,
        "lost_part_at_600_secs": 0.5 / 600 + 600 / 7200,
    }
    every_50 = figures["cadences"]["50"]
    assert (every_50["interval_secs"], every_50["saves"]) == (5.0, 2)
    assert every_50["slowdown"]["median"] == pytest.approx(0.1)
    assert every_50["lost_part"] == 0.5 / 5 + 5 / 7200


def test_costs_that_agree_are_said_to_and_the_noted_one_is_counted_with():
    # A checkpoint takes 0.6 s of the loop, in each of two rounds; 0.5 s are noted.
    slow = {every: [0.1 + 0.6 / every] * 2 for every in (30, 10, 3)}
    figures = told(slow, none=(0.1, 0.1), pilot=0.102)
    assert figures["cost"]["verdict"] == cost.AGREES
    assert figures["cost"]["measured_secs"] == pytest.approx(0.6)
    assert figures["cost"]["secs"] == 0.5
    assert figures["noise"] == pytest.approx(0.02)
    text = rendered(figures)
    assert "come to 0.6 s for each checkpoint, about the same." in text
    assert "at most" not in text and "not quiet" not in text
    assert "of 2 rounds." in text


def test_a_consistent_slowdown_is_counted_with_where_it_is_more_than_noted():
    # 2 s a checkpoint, beside 5 % of noise in the runs.
    slow = {30: [0.170], 10: [0.295], 3: [0.770]}
    figures = told(slow, pilot=0.105)
    assert figures["cost"]["verdict"] == cost.LOST_MORE
    assert figures["cost"]["measured_secs"] == pytest.approx(2.01)
    # The root of 2 * 2.01 s * 3600 s; the table counts with the same cost.
    assert figures["advice"]["interval_secs"] == 120
    assert figures["cadences"]["10"]["lost_part"] == pytest.approx(2.01 + 1 / 7200)
    text = rendered(figures)
    assert "The runtime notes 0.5 s of a checkpoint" in text
    assert "**Training lost more**: the measured slowdowns come to 2.01 s" in text
    assert "With 2.01 s for each and a failure every 1 h" in text


@pytest.mark.parametrize(
    ("slow", "none", "verdict", "said"),
    [
        pytest.param(
            *({300: [0.116], 100: [0.13], 30: [0.174]}, 0.101, cost.NOISY),
            "do not grow in proportion to the saves, as a cost would; most likely the "
            "machine was too noisy, so the advice counts with the noted cost: use more --rounds on "
            "a quiet machine.",
            id="+16 to +74 %, though ten times as many are saved",
        ),
        pytest.param(
            *({30: [0.2], 10: [0.15], 3: [0.1]}, 0.101, cost.NOISY),
            "do not grow in proportion to the saves",
            id="less where more are saved",
        ),
        pytest.param(
            *({30: [0.11], 10: [0.13], 3: [0.19]}, 0.2, cost.HIDDEN),
            "none exceeds the 100.0% by which runs without checkpoints differ",
            id="all in the noise",
        ),
        pytest.param(
            *({3: [0.77]}, 0.101, cost.ALONE),
            "one cadence alone does not show whether that is noise",
            id="one cadence",
        ),
        pytest.param(
            *({30: [0.104], 10: [0.11], 3: [0.135]}, 0.101, cost.LOST_LESS),
            "Training lost less, 0.105 s for each checkpoint",
            id="consistent, but less than noted",
        ),
        pytest.param(
            *({30: [0.1], 10: [0.1], 3: [0.1]}, 0.101, cost.LOST_LESS),
            "Training lost less, 0 s for each checkpoint",
            id="nothing, where the noted cost would be seen",
        ),
    ],
)
def test_else_the_noted_cost_is_kept_and_the_report_says_why(slow, none, verdict, said):
    figures = told(slow, pilot=none)
    assert (figures["cost"]["verdict"], figures["cost"]["secs"]) == (verdict, 0.5)
    assert figures["advice"]["interval_secs"] == 60
    text = rendered(figures)
    assert said in text
    assert ("**The machine is not quiet**: runs" in text) == (none == 0.2)


def test_a_cadence_faster_than_its_checkpoints_are_written_is_no_noise():
    # As measured of 13 MB: every third step a save waits for the one before.
    slow = {30: [0.1 + 0.56 / 30], 10: [0.1 + 0.65 / 10], 3: [0.1 + 0.33 / 3]}
    figures = told(slow)
    assert figures["cost"]["verdict"] == cost.AGREES


def test_one_loud_round_of_three_does_not_move_the_cost():
    slow = {every: [0.1 + 0.5 / every, 9.0, 0.1 + 0.5 / every] for every in (10, 3)}
    figures = told(slow, none=(0.1, 0.1, 0.1))
    assert figures["cost"]["verdict"] == cost.AGREES
    assert figures["cost"]["measured_secs"] == pytest.approx(0.5)


def test_cadences_of_which_few_saves_fell_into_a_run_are_named():
    # 10 s are 77 steps, of which every 30th is two saves: that at the start is not in.
    figures = told({30: [0.13], 10: [0.15]})
    assert figures["cadences"]["30"]["saves_per_run"] == 2
    assert figures["cadences"]["10"]["saves_per_run"] == 6
    said = "fewer than 3 fell into a run when saved every 30 steps, which says"
    assert said in rendered(figures)
    assert "Few saves" not in rendered(told({10: [0.15]}))


@pytest.mark.parametrize(
    ("options", "script", "said"),
    [
        ((), ["missing.py"], "--script 'missing.py' is no file; give a script"),
        ((), [], "--script is empty; give a script, and its arguments"),
        (("--secs", "0"), ["x.py"], "--secs is 0; give a number above 0"),
        (
            ("--mtbf-hours", "nan"),
            ["x.py"],
            "--mtbf-hours is nan; give a number above 0",
        ),
        (("--rounds", "0"), ["x.py"], "--rounds is 0; give 1 or more"),
    ],
)
def test_what_cannot_be_is_one_line(
    options, script, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    assert run(script, *options) == 2
    assert capsys.readouterr().err == f"benchmarks cadence: error: {said}\n"


def test_a_task_of_a_cluster_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"chief": ["127.0.0.1:1"]}}')
    (tmp_path / "x.py").write_text("")
    assert run([str(tmp_path / "x.py")]) == 2
    assert "TF_CONFIG has a cluster, but one process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise LookupError('no data')", "x.py ended with status 1:"),
        ("print('nothing')", "x.py trained no tf.estimator Estimator; only these"),
    ],
)
def test_a_script_that_cannot_be_measured_is_named(
    text, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text(text)
    assert run(["x.py"], "--secs", "0.2") == 2
    told = capsys.readouterr().err
    assert f"benchmarks cadence: error: {said}" in told
    assert ("LookupError: no data" in told) == ("LookupError" in text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_benchmark):
    """The folder in which a training of some steps was measured."""
    folder = tmp_path_factory.mktemp("cadence")
    (folder / "train.py").write_text(SCRIPT)
    _train(folder, 4)
    run_benchmark(
        *("cadence", "--secs", "0.3", "--rounds", "1", "--mtbf-hours", "2"),
        *("--output", "out"),
        *("--script", "train.py", "100000"),
        cwd=folder,
    )
    return folder


def _train(folder, steps):
    import subprocess

    subprocess.run(
        [sys.executable, "-m", "estimator_runtime", "run", "train.py", str(steps)],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )


def test_a_real_training_is_measured_at_each_cadence_and_gets_an_interval(folder):
    report = json.loads((folder / "out" / "cadence.json").read_text())
    names = list(report["cadences"])
    assert names[0] == "none" and names[1:] and all(n.isdigit() for n in names[1:])
    for name in names[1:]:
        own = report["cadences"][name]
        # The last checkpoint at least; the first step's had been restored.
        assert own["saves"] >= 1 and own["bytes"] > 4000
    assert any(report["cadences"][name]["saves_per_run"] > 0 for name in names[1:])
    assert report["cost"]["blocked_secs"] > 0
    told = (folder / "out" / "cadence.md").read_text()
    interval_secs = report["advice"]["interval_secs"]
    assert f"Choose **`RunConfig(save_checkpoints_secs={interval_secs})`**" in told
    assert "a failure every 2 h" in told
    rows = re.findall(r"^\| (\d+) steps \|", told, re.M)
    assert rows == names[1:]


def test_the_model_directory_is_as_it_was_and_no_copy_of_it_is_left(folder):
    assert os.listdir(folder / "models") == ["mine"]
    steps = {p.name.split(".")[1] for p in (folder / "models/mine").glob("*.index")}
    assert steps == {"ckpt-0", "ckpt-2", "ckpt-4"}


def test_the_plot_is_drawn_where_matplotlib_is_installed(folder):
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    assert (folder / "out" / "cadence.png").exists() == has_matplotlib


def test_the_table_can_be_printed_again(folder, capsys):
    out = folder / "out"
    assert benchmarks.main(["table", str(out / "cadence.json")]) == 0
    assert capsys.readouterr().out == (out / "cadence.md").read_text()
