"""The benchmark of somebody's own training: its choice, its errors, and a real run."""

import importlib.util
import json
import os
import re
import sys

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import cadence, cadence_report
from benchmarks.cadence_report import Training

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
    """Give the exit status of the command, run in this process."""
    return benchmarks.main(["cadence", *options, "--script", *script])


@pytest.mark.parametrize(
    ("steps", "cadences"),
    [
        (1, [1]),
        (2, [1]),
        (20, [10, 3, 1]),
        (199, [30, 10, 3, 1]),
        (9_000, [3000, 1000, 300, 100]),
        (2_500, [1000, 300, 100, 30]),
    ],
)
def test_cadences_are_round_numbers_of_which_two_fit_into_a_run(steps, cadences):
    assert cadence.choose_cadences(steps) == cadences


def test_the_interval_that_loses_least_is_chosen_and_the_loss_named():
    saves = tuple((step, 1e6, 0.25, 0.25) for step in (0, 10))
    found = {
        "none": [Training(steps=100, secs=10.0, saves=saves)],
        "50": [Training(steps=80, secs=10.0, saves=saves)],
    }
    told = cadence_report.figures(found, mtbf_hours=1.0)
    # The root of 2 * 0.5 s * 3600 s is 60 s.
    assert told["advice"] == {
        "interval_secs": 60,
        "interval_steps": 600,
        "checkpoints_part": 0.5 / 60,
        "lost_part": 0.5 / 60 + 60 / 7200,
        "lost_part_at_600_secs": 0.5 / 600 + 600 / 7200,
    }
    every_50 = told["cadences"]["50"]
    assert (every_50["interval_secs"], every_50["saves"]) == (5.0, 2)
    assert every_50["slowdown"]["median"] == pytest.approx(0.25)
    assert every_50["lost_part"] == 0.5 / 5 + 5 / 7200


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
        *("cadence", "--secs", "0.3", "--output", "out", "--mtbf-hours", "2"),
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
