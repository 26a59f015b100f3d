"""Checkpoints and SavedModels of TensorFlow 2.15.1 (stock) and 2.21, read by this one.

models/record.py wrote them, on each, with the predictions that this test expects.
"""

import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

MODELS = pathlib.Path(__file__).with_name("models")
sys.path.insert(0, str(MODELS))
import record  # noqa: E402

sys.path.remove(str(MODELS))
EVERY = pytest.mark.parametrize(
    "written_by, name",
    [(version, name) for version in ("tf-2.15", "tf-2.21") for name in ("custom", "canned")],
)  # fmt: skip


def expected(folder):
    return json.loads((folder / "predictions.json").read_text())


@EVERY
def test_a_checkpoint_predicts_the_same(written_by, name, tmp_path):
    folder = MODELS / written_by / name
    estimator = record.estimators()[name](str(tmp_path))
    found = record.predict(estimator, str(folder / "model.ckpt-30"))
    np.testing.assert_allclose(found, expected(folder), rtol=0, atol=1e-6)


@EVERY
def test_training_goes_on_from_a_checkpoint(written_by, name, tmp_path):
    folder = MODELS / written_by / name
    for file in folder.glob("model.ckpt-30.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-30"\n')
    estimator = record.estimators()[name](str(tmp_path))
    before = estimator.evaluate(record.input_fn, steps=1)
    after = estimator.train(record.input_fn, steps=20).evaluate(
        record.input_fn, steps=1
    )
    assert (before["global_step"], after["global_step"]) == (30, 50)
    assert after["loss"] < before["loss"]


@EVERY
def test_a_saved_model_predicts_the_same(written_by, name):
    folder = MODELS / written_by / name
    model = tf.saved_model.load(str(folder / "export"))
    # A regressor's other signatures take serialized examples.
    serve = model.signatures["serving_default" if name == "custom" else "predict"]
    answer = serve(x=tf.constant(record.FEATURES))["predictions"]
    np.testing.assert_allclose(answer[:, 0], expected(folder), rtol=0, atol=1e-6)
