"""The example, an untouched Estimator script, run as a user runs it."""

import re
from pathlib import Path

import tensorflow as tf

_SCRIPT = Path(__file__).parents[2] / "examples" / "digits.py"


def _accuracy(result):
    found = re.fullmatch(
        r"held-out accuracy (\d\.\d+) after (\d+) steps", result.stdout.strip()
    )
    assert found, result.stdout + result.stderr
    return float(found[1]), int(found[2])


def test_the_example_trains_checkpoints_summarizes_exports_and_resumes(
    run_script, tmp_path
):
    flags = ["--model_dir", "model", "--max_steps", "600"]
    result = run_script(_SCRIPT, *flags, cwd=tmp_path, timeout=240)
    accuracy, steps = _accuracy(result)
    assert (accuracy > 0.95, steps, result.returncode) == (True, 600, 0)
    model = tmp_path / "model"
    assert tf.train.latest_checkpoint(str(model)) == str(model / "model.ckpt-600")
    assert list(model.glob("events.out.tfevents.*"))
    assert list(model.glob("eval/events.out.tfevents.*"))
    assert list(model.glob("export/*/*/saved_model.pb"))

    flags[-1] = "700"
    resumed = run_script(_SCRIPT, *flags, cwd=tmp_path, timeout=240)
    assert _accuracy(resumed)[1] == 700
    assert "Restoring parameters from model/model.ckpt-600" in resumed.stderr


def test_a_model_dir_that_cannot_be_created_is_one_line_that_names_the_scripts_line(
    run_script, tmp_path
):
    (tmp_path / "file").touch()
    result = run_script(_SCRIPT, "--model_dir", "file/model", cwd=tmp_path)
    last_line = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1
    assert re.match(r"estimator-runtime: error: .*digits\.py:\d+: ", last_line)
    assert "'file/model'" in last_line
    assert "cannot be created" in last_line and "Not a directory" in last_line
    assert "Traceback" not in result.stderr
