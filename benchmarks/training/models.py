"""The models that are trained: each as an Estimator and, with equal steps, in Keras.

Batches are cached in memory, so that the input costs little, and the same for all.
"""

import dataclasses
import gzip
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

BATCH_SIZE = 32
_DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "data" / "digits.csv.gz"

tf1 = tf.compat.v1
layers = tf1.layers


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model to train.

    Attributes:
        title: What it is, for people.
        data: Gives its features and labels, as arrays.
        estimator: Makes its Estimator from a RunConfig.
        keras: Makes its compiled Keras model from `steps_per_execution`, or None.
        batch_size: Examples in a batch.
    """

    title: str
    data: Callable
    estimator: Callable
    keras: Callable | None
    batch_size: int = BATCH_SIZE

    def input_fn(self):
        """Return endless batches."""
        examples = tf.data.Dataset.from_tensor_slices(self.data())
        batches = examples.batch(self.batch_size, drop_remainder=True)
        return batches.cache().repeat()


def _regression_data():
    random = np.random.RandomState(0)
    features = random.rand(3200, 16).astype(np.float32)
    # With noise: gradients that fade out to denormal numbers would be slow.
    labels = features.sum(axis=1, keepdims=True) + random.randn(3200, 1)
    return features, labels.astype(np.float32)


def _digits_data():
    with gzip.open(_DIGITS, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int32)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    return images, table[:, 64]


def _regression(network, optimizer):
    def model_fn(features, labels, mode):
        loss = tf1.losses.mean_squared_error(labels, network(features))
        return _train_spec(mode, loss, optimizer())

    return lambda config: tf.estimator.Estimator(model_fn, config=config)


def _train_spec(mode, loss, optimizer):
    train_op = optimizer.minimize(loss, tf1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _keras(make_layers, make_optimizer, loss):
    def make(steps_per_execution):
        model = tf.keras.Sequential(make_layers())
        model.compile(make_optimizer(), loss, steps_per_execution=steps_per_execution)
        return model

    return make


def _dnn_network(features):
    hidden = layers.dense(features, 128, tf.nn.relu)
    return layers.dense(layers.dense(hidden, 64, tf.nn.relu), 1)


def _dnn_layers():
    dense = tf.keras.layers.Dense
    return [dense(128, "relu"), dense(64, "relu"), dense(1)]


def _cnn_estimator(config):
    def model_fn(features, labels, mode):
        maps = layers.conv2d(features, 16, 3, padding="same", activation=tf.nn.relu)
        maps = layers.max_pooling2d(maps, 2, 2)
        maps = layers.conv2d(maps, 32, 3, padding="same", activation=tf.nn.relu)
        logits = layers.dense(layers.flatten(maps), 10)
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
        return _train_spec(mode, loss, tf1.train.AdamOptimizer(0.001))

    return tf.estimator.Estimator(model_fn, config=config)


def _cnn_layers():
    layer = tf.keras.layers
    return [
        layer.Conv2D(16, 3, padding="same", activation="relu"),
        layer.MaxPool2D(2),
        layer.Conv2D(32, 3, padding="same", activation="relu"),
        layer.Flatten(),
        layer.Dense(10),
    ]


SIMPLE_MODELS = {
    "linear": Model(
        title="linear regression, gradient descent",
        data=_regression_data,
        estimator=_regression(
            lambda features: layers.dense(features, 1),
            lambda: tf1.train.GradientDescentOptimizer(0.01),
        ),
        keras=_keras(
            lambda: [tf.keras.layers.Dense(1)],
            lambda: tf.keras.optimizers.SGD(0.01),
            "mse",
        ),
    ),
    "dnn": Model(
        title="2-layer DNN, Adam",
        data=_regression_data,
        estimator=_regression(_dnn_network, lambda: tf1.train.AdamOptimizer(0.001)),
        keras=_keras(_dnn_layers, lambda: tf.keras.optimizers.Adam(0.001), "mse"),
    ),
    "cnn": Model(
        title="small CNN on digits, Adam",
        data=_digits_data,
        estimator=_cnn_estimator,
        keras=_keras(
            _cnn_layers,
            lambda: tf.keras.optimizers.Adam(0.001),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ),
    ),
}


def _many_layers(count):
    """Return the model with `count` layers of two variables each."""

    def network(features):
        net = features
        for _ in range(count - 1):
            net = layers.dense(net, 32, tf.nn.relu)
        return layers.dense(net, 1)

    return Model(
        title=f"DNN with {2 * count} small variables, Adam",
        data=_regression_data,
        estimator=_regression(network, lambda: tf1.train.AdamOptimizer(0.001)),
        keras=None,
    )


def _embeddings(count):
    """Return a model with `count` embedding columns and a 2-layer DNN."""

    def data():
        features, labels = _regression_data()
        random = np.random.RandomState(1)
        ids = {f"c{i}": random.randint(0, 1000, len(labels)) for i in range(count)}
        return {"x": features, **ids}, labels

    def network(features):
        columns = [tf.feature_column.numeric_column("x", shape=[16])] + [
            tf.feature_column.embedding_column(
                tf.feature_column.categorical_column_with_identity(f"c{i}", 1000), 8
            )
            for i in range(count)
        ]
        return _dnn_network(tf1.feature_column.input_layer(features, columns))

    return Model(
        title=f"{count} embedding columns and a 2-layer DNN, Adagrad",
        data=data,
        estimator=_regression(network, lambda: tf1.train.AdagradOptimizer(0.01)),
        keras=None,
    )


def _large_table():
    """Return a model with a table of 50 MB, of which a step uses a few rows."""
    rows, width = 195_312, 64

    def data():
        features, labels = _regression_data()
        ids = np.random.RandomState(1).randint(0, rows, len(labels))
        return {"x": features, "id": ids}, labels

    def network(features):
        column = tf.feature_column.categorical_column_with_identity("id", rows)
        columns = [
            tf.feature_column.numeric_column("x", shape=[16]),
            tf.feature_column.embedding_column(column, width),
        ]
        net = tf1.feature_column.input_layer(features, columns)
        for _ in range(20):
            net = layers.dense(net, 32, tf.nn.relu)
        return layers.dense(net, 1)

    return Model(
        title="table of 50 MB and 42 small variables, Adagrad",
        data=data,
        estimator=_regression(network, lambda: tf1.train.AdagradOptimizer(0.01)),
        keras=None,
    )


# For parameter servers: what counts there is the number of variables.
CLUSTER_MODELS = {
    "linear": SIMPLE_MODELS["linear"],
    "6 variables": SIMPLE_MODELS["dnn"],
    "20 variables": _many_layers(10),
    "60 variables": _many_layers(30),
    "200 variables": _many_layers(100),
    "10 embeddings": _embeddings(10),
    "50 MB table": _large_table(),
}


def check_names(names, known, benchmark):
    """Check that there is a model of each name.

    Args:
        names: Names of models, or None.
        known: The models, by name.
        benchmark: The name of the benchmark that was asked for them.

    Raises:
        SystemExit: If there is none of a name.
    """
    if unknown := [name for name in names or () if name not in known]:
        raise SystemExit(
            f"benchmarks {benchmark}: error: --models has no {unknown[0]!r}; give "
            + ", ".join(map(repr, known))
        )
