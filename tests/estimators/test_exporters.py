"""train_and_evaluate with exporters, and what they export read back."""

import pathlib

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402


def serving_input_fn():
    """Any number of images, 64 pixels each."""
    pixels = tf.compat.v1.placeholder(tf.float32, [None, 64], name="pixels")
    return tf.estimator.export.ServingInputReceiver({"pixels": pixels}, pixels)


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    """An Estimator trained and evaluated at steps 100, 200 and 300, and its dir."""
    model_dir = tmp_path_factory.mktemp("exporters")
    estimator = tf.estimator.DNNClassifier(
        hidden_units=[64, 32],
        feature_columns=[tf.feature_column.numeric_column("pixels", shape=64)],
        n_classes=10,
        optimizer=lambda: tf.keras.optimizers.legacy.Adam(0.003),
        config=tf.estimator.RunConfig(
            model_dir, tf_random_seed=1, save_checkpoints_steps=100
        ),
    )
    metrics, exported = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(digits.to_train(), max_steps=300),
        tf.estimator.EvalSpec(
            digits.held_out(),
            steps=None,
            exporters=[
                tf.estimator.FinalExporter("final", serving_input_fn),
                tf.estimator.LatestExporter("latest", serving_input_fn),
                tf.estimator.BestExporter("best", serving_input_fn),
            ],
            start_delay_secs=0,
            throttle_secs=0,
        ),
    )
    return estimator, pathlib.Path(model_dir), metrics, exported


def exports(model_dir, exporter):
    """The SavedModels of an exporter, oldest first: a folder each, named by time."""
    return sorted((model_dir / "export" / exporter).iterdir())


def test_train_and_evaluate_learns_to_read_digits(trained):
    _, _, metrics, _ = trained
    assert metrics["global_step"] == 300
    assert metrics["accuracy"] >= 0.9


def test_the_final_exporter_exports_once_and_the_latest_at_every_evaluation(trained):
    _, model_dir, _, exported = trained
    (final,) = exports(model_dir, "final")
    latest = exports(model_dir, "latest")
    assert len(latest) == 3
    assert [pathlib.Path(path.decode()) for path in exported[:2]] == [final, latest[-1]]


@pytest.mark.parametrize("exporter", ["final", "latest", "best"])
def test_a_saved_model_predicts_what_the_estimator_predicts(exporter, trained, digits):
    estimator, model_dir, _, _ = trained
    step = 300
    if exporter == "best":
        losses = {
            step: estimator.evaluate(
                digits.held_out(), checkpoint_path=f"{model_dir}/model.ckpt-{step}"
            )["loss"]
            for step in (100, 200, 300)
        }
        step = min(losses, key=losses.get)
    predicted = estimator.predict(
        digits.held_out(), checkpoint_path=f"{model_dir}/model.ckpt-{step}"
    )

    saved = tf.saved_model.load(str(exports(model_dir, exporter)[-1]))
    served = saved.signatures["predict"](tf.constant(digits.held_out_images))

    np.testing.assert_allclose(
        served["probabilities"],
        [each["probabilities"] for each in predicted],
        rtol=0,
        atol=1e-6,
    )
