"""An Estimator that comes with the package: DNNClassifier."""

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402


def test_a_dnn_classifier_learns_to_read_digits(digits, tmp_path):
    estimator = tf.estimator.DNNClassifier(
        hidden_units=[64, 32],
        feature_columns=[tf.feature_column.numeric_column("pixels", shape=64)],
        n_classes=10,
        optimizer=lambda: tf.keras.optimizers.legacy.Adam(0.003),
        config=tf.estimator.RunConfig(tmp_path, tf_random_seed=1),
    )
    untrained = estimator.evaluate(digits.held_out())

    estimator.train(digits.to_train(), steps=300)

    trained = estimator.evaluate(digits.held_out())
    assert untrained["global_step"] == 0
    assert untrained["accuracy"] < 0.3
    assert trained["global_step"] == 300
    assert trained["accuracy"] >= 0.9
    assert trained["loss"] < untrained["loss"]


def test_a_dnn_classifier_of_the_v1_api_learns_to_read_digits(digits, tmp_path):
    estimator = tf.compat.v1.estimator.DNNClassifier(
        hidden_units=[64, 32],
        feature_columns=[tf.feature_column.numeric_column("pixels", shape=64)],
        n_classes=10,
        optimizer=tf.compat.v1.train.AdamOptimizer(0.003),
        config=tf.compat.v1.estimator.RunConfig(tmp_path, tf_random_seed=1),
    )

    estimator.train(digits.to_train(), steps=300)

    assert estimator.evaluate(digits.held_out())["accuracy"] >= 0.9
    read = [int(p["class_ids"][0]) for p in estimator.predict(digits.held_out())]
    assert (read == digits.held_out_labels).mean() >= 0.9
