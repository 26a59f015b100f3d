"""A wide-and-deep model on feature columns, of the shape of a census table."""

import numpy as np
import tensorflow as tf

from benchmarks.training.models import Model

_EDUCATION = ["none", "school", "college", "bachelor", "master", "doctor"]
_HIDDEN_UNITS = [64, 32]
_column = tf.feature_column


def _data():
    random = np.random.RandomState(0)
    rows = 3200
    age = random.randint(17, 90, (rows, 1)).astype(np.float32)
    hours = random.randint(1, 80, (rows, 1)).astype(np.float32)
    features = {
        "age": age,
        "hours": hours,
        "education": random.choice(_EDUCATION, (rows, 1)),
        "occupation": random.choice([f"job {i}" for i in range(40)], (rows, 1)),
    }
    earns = age + hours + 20 * random.randn(rows, 1) > 95
    return features, earns.astype(np.float32)


def _columns():
    """Return the wide columns and the deep columns."""
    age, hours = _column.numeric_column("age"), _column.numeric_column("hours")
    ages = _column.bucketized_column(age, [25, 35, 45, 55, 65])
    education = _column.categorical_column_with_vocabulary_list("education", _EDUCATION)
    occupation = _column.categorical_column_with_hash_bucket("occupation", 100)
    crossed = _column.crossed_column([ages, "education"], 1000)
    deep = [
        age,
        hours,
        _column.indicator_column(education),
        _column.embedding_column(occupation, 8),
    ]
    return [ages, education, occupation, crossed], deep


def _estimator(config):
    wide, deep = _columns()
    return tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide,
        dnn_feature_columns=deep,
        dnn_hidden_units=_HIDDEN_UNITS,
        config=config,
    )


def _keras(steps_per_execution):
    wide, deep = _columns()
    layers = tf.keras.layers
    # A weight for each category is an embedding of one number.
    weights = [
        _column.embedding_column(c, 1, "sum", tf.zeros_initializer()) for c in wide
    ]
    linear = tf.keras.Sequential(
        [
            layers.DenseFeatures(weights),
            layers.Lambda(lambda each: tf.reduce_sum(each, axis=1, keepdims=True)),
        ]
    )
    hidden = [layers.Dense(units, "relu") for units in _HIDDEN_UNITS]
    network = tf.keras.Sequential(
        [layers.DenseFeatures(deep), *hidden, layers.Dense(1)]
    )
    model = tf.keras.experimental.WideDeepModel(linear, network)
    optimizers = tf.keras.optimizers
    model.compile(
        # The Estimator's own choices.
        [optimizers.Ftrl(0.005), optimizers.Adagrad(0.001)],
        tf.keras.losses.BinaryCrossentropy(from_logits=True),
        steps_per_execution=steps_per_execution,
    )
    return model


WIDE_AND_DEEP = Model(
    title="wide and deep on feature columns, FTRL and Adagrad",
    data=_data,
    estimator=_estimator,
    keras=_keras,
)
