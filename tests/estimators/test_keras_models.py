"""A compiled Keras model as an Estimator: model_to_estimator."""

import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402


def keras_model(optimizer):
    """A compiled model of one hidden layer and dropout."""
    model = tf.keras.Sequential(
        [
            tf.keras.Input((64,), name="pixels"),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def test_the_weights_go_from_a_keras_model_to_an_estimator_and_back(digits, tmp_path):
    held_out = (digits.held_out_images, digits.held_out_labels)
    model = keras_model(tf.keras.optimizers.legacy.Adam(0.005))
    _, fresh_accuracy = model.evaluate(*held_out, verbose=0)

    estimator = tf.keras.estimator.model_to_estimator(
        model, config=tf.estimator.RunConfig(tmp_path)
    )
    untrained = estimator.evaluate(digits.held_out())
    estimator.train(digits.to_train(), steps=300)
    trained = estimator.evaluate(digits.held_out())
    # A new model, as Keras refuses eager use of those made before a conversion.
    model = keras_model(tf.keras.optimizers.legacy.Adam(0.005))
    model.load_weights(estimator.latest_checkpoint()).expect_partial()
    _, trained_accuracy = model.evaluate(*held_out, verbose=0)

    assert untrained["accuracy"] == pytest.approx(fresh_accuracy)
    assert trained["accuracy"] == pytest.approx(trained_accuracy)
    assert trained_accuracy >= 0.9
