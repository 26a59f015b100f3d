"""Keras's new-style optimizers in Estimators, where legacy ones were asked for."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()

DATA = np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2)


def input_fn():
    data = tf.data.Dataset.from_tensor_slices(({"x": DATA}, DATA.sum(1, keepdims=True)))
    return data.repeat().batch(8)


def weights(optimizer, folder):
    """What a linear regressor has learned after 5 steps."""
    column = tf.feature_column.numeric_column("x", shape=[2])
    estimator = tf.estimator.LinearRegressor(
        [column], str(folder), optimizer=optimizer
    ).train(input_fn, steps=5)
    return estimator.get_variable_value("linear/linear_model/x/weights").tolist()


@pytest.mark.parametrize("name", ["SGD", "Adam", "Ftrl"])
def test_a_new_style_optimizer_takes_the_steps_of_its_legacy_one(name, tmp_path):
    new = getattr(tf.keras.optimizers, name)(0.05)
    legacy = getattr(tf.keras.optimizers.legacy, name)(0.05)
    assert isinstance(new, tf.keras.optimizers.experimental.Optimizer)
    assert weights(new, tmp_path / "new") == weights(legacy, tmp_path / "legacy")


@pytest.mark.parametrize("option", [{"weight_decay": 0.1}, {"use_ema": True}])
def test_one_that_has_no_legacy_form_is_refused_with_what_to_write(option, tmp_path):
    with pytest.raises(
        ValueError, match=r"e\.g\., `tf\.keras\.optimizers\.legacy\.SGD`"
    ):
        weights(tf.keras.optimizers.SGD(0.1, **option), tmp_path)


def test_a_keras_model_with_a_new_style_optimizer_trains(tmp_path):
    model = tf.keras.Sequential(
        [tf.keras.layers.Input([2], name="x"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
    estimator = tf.keras.estimator.model_to_estimator(model, model_dir=str(tmp_path))
    before = estimator.train(input_fn, steps=1).evaluate(input_fn, steps=1)["loss"]
    after = estimator.train(input_fn, steps=50).evaluate(input_fn, steps=1)["loss"]
    assert after < before
