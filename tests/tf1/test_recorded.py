"""A checkpoint of TensorFlow 1.15.5 has the same values in TensorFlow 1 mode."""

import json
import pathlib
import shutil

import pytest

RECORDED = pathlib.Path(__file__).parent / "recorded"


def test_a_checkpoint_of_tensorflow_1_predicts_and_trains_on_as_there(
    original_contrib, tmp_path, run_tf1
):
    model = tmp_path / "model"
    model.mkdir()
    for file in RECORDED.glob("model.ckpt-20.*"):
        shutil.copy(file, model)
    (model / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-20"\n')
    script = str(RECORDED / "train.py")
    done = run_tf1(script, "model", "0", "result.json", **original_contrib)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    expected = json.loads((RECORDED / "recorded.json").read_text())
    assert result.pop("variables") == expected.pop("variables")
    assert list(result) == list(expected)
    for name, values in expected.items():
        assert result[name] == pytest.approx(values, rel=1e-5, abs=1e-6), name
