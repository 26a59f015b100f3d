"""Programs that say `import keras`, which is Keras 3 beside TensorFlow 2.16 and newer."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.errors import CompatibilityError
from estimator_runtime.tf_internals import versions

estimator_runtime.install()
keras = importlib.import_module("keras")  # after it: this imports TensorFlow

on_keras_2 = versions.parse(tf.__version__) < (2, 16)
of_keras_3 = pytest.mark.skipif(
    on_keras_2, reason="beside TensorFlow 2.15, keras is Keras 2"
)
DATA = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
REMEDY = "write `from tensorflow import keras`, or `import tf_keras as keras`"


def input_fn():
    return tf.data.Dataset.from_tensors(({"x": DATA}, DATA.sum(1))).repeat()


def estimator(predictor, folder):
    """An Estimator that predicts with `predictor`, a function of features and mode."""

    def model_fn(features, labels, mode):
        predictions = predictor(features["x"], mode)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"y": predictions})
        loss = tf.reduce_mean((predictions - labels) ** 2)
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(
            loss, tf.compat.v1.train.get_global_step()
        )
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return tf.estimator.Estimator(model_fn, str(folder))


def weighted(x):
    weights = tf.compat.v1.get_variable("weights", [3, 1])
    return tf.matmul(x, weights)[:, 0]


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)


class OwnVariable(keras.layers.Layer):
    def call(self, x):
        return x + tf.Variable(0.0, name="own")


@of_keras_3
@pytest.mark.parametrize(
    "name, make",
    [
        ("Dense", lambda x: keras.layers.Dense(1)(x)),
        ("Dropout", lambda x: keras.layers.Dropout(0.5)(x, training=True)),
        ("BatchNormalization", lambda x: keras.layers.BatchNormalization()(x)),
        ("Sequential", lambda x: keras.Sequential([keras.layers.Dense(1)])(x)),
        ("Dense", lambda x: keras.layers.Dense(1)(keras.Input([3]))),
        ("Net", lambda x: Net()(x)),
        ("Adam", lambda x: keras.optimizers.Adam()),
        ("Mean", lambda x: keras.metrics.Mean()(x)),
        ("Variable", lambda x: keras.Variable(1.0)),
    ],
)
def test_a_model_fn_that_makes_variables_with_keras_3_is_told_so(name, make, tmp_path):
    with pytest.raises(
        CompatibilityError, match=f"the model_fn makes variables with {name} of Keras 3"
    ) as raised:
        estimator(lambda x, mode: make(x), tmp_path).train(input_fn, steps=1)
    assert REMEDY in str(raised.value)
    assert not list(tmp_path.glob("model.ckpt*"))


@of_keras_3
def test_it_is_told_in_every_mode(tmp_path):
    def predictor(x, mode):
        if mode != asked:
            return weighted(x)
        return keras.layers.Dense(1)(x)[:, 0]

    asked, model = None, estimator(predictor, tmp_path)
    model.train(input_fn, steps=1)
    told = pytest.raises(CompatibilityError, match="Dense of Keras 3")
    asked = tf.estimator.ModeKeys.EVAL
    with told:
        model.evaluate(input_fn, steps=1)
    asked = tf.estimator.ModeKeys.PREDICT
    with told:
        next(model.predict(input_fn))
    serving = tf.estimator.export.build_raw_serving_input_receiver_fn(
        {"x": tf.constant(DATA)}
    )
    with told:
        model.export_saved_model(str(tmp_path / "export"), serving)


def test_what_of_keras_makes_no_variables_of_the_graph_may_be_used(tmp_path):
    def predictor(x, mode):
        assert keras.utils.to_categorical([1], 2).tolist() == [[0, 1]]
        x = keras.activations.relu(OwnVariable(name="layer")(x))
        with tf.Graph().as_default():
            keras.layers.Dense(1)(tf.zeros([1, 3]))
        return weighted(x)

    model = estimator(predictor, tmp_path)
    for _ in range(2):
        model.train(input_fn, steps=1)
    assert model.evaluate(input_fn, steps=1)["global_step"] == 2
    assert set(model.get_variable_names()) >= {"weights", "global_step"}


@of_keras_3
@pytest.mark.parametrize("kind", ["sequential", "functional", "of its own class"])
def test_a_model_of_keras_3_cannot_become_an_estimator(kind, tmp_path):
    inputs = keras.Input([3], name="x")
    model = {
        "sequential": lambda: keras.Sequential([inputs, keras.layers.Dense(1)]),
        "functional": lambda: keras.Model(inputs, keras.layers.Dense(1)(inputs)),
        "of its own class": Net,
    }[kind]()
    model.compile("sgd", "mse")
    for to_estimator in (
        tf.keras.estimator.model_to_estimator,
        tf.compat.v1.keras.estimator.model_to_estimator,
    ):
        with pytest.raises(
            CompatibilityError,
            match=f"was given {type(model).__name__} of Keras 3",
        ) as raised:
            to_estimator(model, model_dir=str(tmp_path))
        assert REMEDY in str(raised.value)


@of_keras_3
def test_an_optimizer_of_keras_3_in_a_canned_estimator_is_told_so(tmp_path):
    column = tf.feature_column.numeric_column("x", shape=[3])
    model = tf.estimator.LinearRegressor(
        [column], str(tmp_path), optimizer=keras.optimizers.Adam()
    )
    with pytest.raises(CompatibilityError, match="the optimizer is Adam of Keras 3"):
        model.train(input_fn, steps=1)


@pytest.mark.skipif(not on_keras_2, reason="keras is Keras 3 here")
def test_keras_itself_serves_estimators_where_it_is_keras_2(tmp_path):
    own = estimator(lambda x, mode: keras.layers.Dense(1)(x)[:, 0], tmp_path / "own")
    sequential = keras.Sequential(
        [keras.Input([3], name="x"), keras.layers.Dense(1, name="y")]
    )
    sequential.compile(keras.optimizers.legacy.SGD(0.1), "mse")
    of_keras = tf.keras.estimator.model_to_estimator(
        sequential, model_dir=str(tmp_path / "keras")
    )
    for each in (own, of_keras):
        for _ in range(2):
            each.train(input_fn, steps=1)
        assert each.evaluate(input_fn, steps=1)["global_step"] == 2
