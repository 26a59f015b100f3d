"""Keras's new-style optimizers in Estimators, where legacy ones were asked for."""

import inspect

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


# Name and options of optimizers whose new style and legacy form take the same steps.
EQUAL = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Ftrl", {"l1_regularization_strength": 0.01}),
    ("Adadelta", {}),
    ("Adagrad", {}),
    ("Adamax", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
]
UNEQUAL = [
    ("RMSprop", {}),
    ("RMSprop", {"centered": True}),
    ("Adagrad", {"epsilon": 1e-3}),
    ("Adagrad", {"initial_accumulator_value": 0.0}),
    ("Nadam", {}),
]
ids = [f"{name} {options or ''}" for name, options in [*EQUAL, *UNEQUAL]]


@pytest.mark.parametrize("name, options", EQUAL, ids=ids[: len(EQUAL)])
def test_a_new_style_optimizer_takes_the_steps_of_its_legacy_one(
    name, options, tmp_path
):
    new = getattr(tf.keras.optimizers, name)(0.05, **options)
    legacy = getattr(tf.keras.optimizers.legacy, name)(0.05, **options)
    assert isinstance(new, tf.keras.optimizers.experimental.Optimizer)
    assert weights(new, tmp_path / "new") == weights(legacy, tmp_path / "legacy")


class _OwnStep(tf.keras.optimizers.Adam):
    def update_step(self, gradient, variable):
        variable.assign_sub(gradient)


_OwnStep.__name__ = "Adam"  # as `class Adam(tf.keras.optimizers.Adam)`


@pytest.mark.parametrize(
    "make",
    [
        *(
            lambda name=name, options=options: getattr(tf.keras.optimizers, name)(
                0.05, **options
            )
            for name, options in UNEQUAL
        ),
        _OwnStep,
        tf.keras.optimizers.Lion,
        tf.keras.optimizers.Adafactor,
    ],
    ids=[*ids[len(EQUAL) :], "a step of its own", "Lion", "Adafactor"],
)
def test_one_whose_legacy_form_takes_other_steps_is_refused(make, tmp_path):
    optimizer = make()
    with pytest.raises(ValueError, match="Please set your optimizer as an instance of"):
        weights(optimizer, tmp_path)


def test_an_option_that_a_legacy_optimizer_lacks_is_not_dropped(tmp_path):
    parameters = inspect.signature(tf.keras.optimizers.Adam).parameters
    if "adaptive_epsilon" not in parameters:
        pytest.skip("Adam of this Keras has no adaptive_epsilon")
    optimizer = tf.keras.optimizers.Adam(0.05, adaptive_epsilon=True)
    with pytest.raises(ValueError, match="Please set your optimizer as an instance of"):
        weights(optimizer, tmp_path)


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
