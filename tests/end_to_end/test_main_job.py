"""The example, an untouched Estimator script, run as a user runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import tensorflow as tf

_SCRIPT = str(Path(__file__).parents[2] / "examples" / "digits.py")
_RUNTIME = [sys.executable, "-m", "estimator_runtime", "run"]


def _run(*command, cwd, **environ):
    # Without what install() of this process left for its children.
    inherited = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        timeout=240,
    )


def _accuracy(result):
    found = re.fullmatch(
        r"held-out accuracy (\d\.\d+) after (\d+) steps", result.stdout.strip()
    )
    assert found, result.stdout + result.stderr
    return float(found[1]), int(found[2])


def test_the_example_trains_checkpoints_summarizes_exports_and_resumes(tmp_path):
    flags = ["--model_dir", "model", "--max_steps", "600"]
    result = _run(*_RUNTIME, _SCRIPT, *flags, cwd=tmp_path)
    accuracy, steps = _accuracy(result)
    assert (accuracy > 0.95, steps, result.returncode) == (True, 600, 0)
    model = tmp_path / "model"
    assert tf.train.latest_checkpoint(str(model)) == str(model / "model.ckpt-600")
    assert list(model.glob("events.out.tfevents.*"))
    assert list(model.glob("eval/events.out.tfevents.*"))
    assert list(model.glob("export/*/*/saved_model.pb"))

    flags[-1] = "700"
    resumed = _run(*_RUNTIME, _SCRIPT, *flags, cwd=tmp_path)
    assert _accuracy(resumed)[1] == 700
    assert "Restoring parameters from model/model.ckpt-600" in resumed.stderr


def test_a_model_dir_that_cannot_be_created_is_one_line_that_names_the_scripts_line(
    tmp_path,
):
    (tmp_path / "file").touch()
    result = _run(*_RUNTIME, _SCRIPT, "--model_dir", "file/model", cwd=tmp_path)
    last_line = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1
    assert re.match(r"estimator-runtime: error: .*digits\.py:\d+: ", last_line)
    assert "'file/model'" in last_line
    assert "cannot be created" in last_line and "is not a folder" in last_line
    assert "Traceback" not in result.stderr
