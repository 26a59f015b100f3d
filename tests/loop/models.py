"""Small models and optimizers, of every kind that trains its own way.

Not collected by pytest; `conftest` loads it, by path.
"""

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
ROWS = 96


def rows():
    """Return features and labels, always the same."""
    random = np.random.RandomState(0)
    x = random.normal(size=[ROWS, 36]).astype(np.float32)
    words = random.randint(0, 50, size=[ROWS, 5])
    names = np.array(["red", "green", "blue", "none"])[words[:, 0] % 4]
    labels = (x[:, :1] * x[:, 1:2] + words[:, :1] % 2 > 0.3).astype(np.float32)
    return {"x": x, "words": words, "name": names}, labels


def linear(features):
    weights = tf1.get_variable("weights", [36, 1])
    tf1.summary.histogram("features", features["x"] + 1)
    return tf.matmul(features["x"], weights)


def dropout(features):
    hidden = tf1.layers.dense(features["x"], 16, tf.nn.relu)
    hidden = tf1.layers.dropout(hidden, 0.4, training=True)
    tf1.summary.histogram("hidden", hidden)
    return tf1.layers.dense(hidden, 1)


def embedding(features):
    table = tf1.get_variable("table", [50, 4])
    words = tf.nn.embedding_lookup(table, features["words"])
    return tf1.layers.dense(tf.reduce_mean(words, 1), 1)


def batch_norm(features):
    hidden = tf1.layers.dense(features["x"], 16)
    hidden = tf1.layers.batch_normalization(hidden, training=True)
    return tf1.layers.dense(tf.nn.relu(hidden), 1)


def cnn(features):
    image = tf.reshape(features["x"], [-1, 6, 6, 1])
    image = tf1.layers.conv2d(image, 4, 3, activation=tf.nn.relu)
    image = tf1.layers.max_pooling2d(image, 2, 2)
    return tf1.layers.dense(tf1.layers.flatten(image), 1)


def wide_and_deep(optimizer, config):
    column = tf.feature_column
    name = column.categorical_column_with_vocabulary_list(
        "name", ["red", "green", "blue"], num_oov_buckets=1
    )
    words = column.categorical_column_with_hash_bucket("words", 20, tf.int64)
    return tf1.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=[
            name,
            words,
            column.crossed_column(["name", "words"], 30),
        ],
        linear_optimizer=tf1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
        dnn_feature_columns=[
            column.numeric_column("x", 36),
            column.embedding_column(words, 4),
            column.indicator_column(name),
        ],
        dnn_optimizer=optimizer,
        dnn_hidden_units=[16, 8],
        dnn_dropout=0.2,
        config=config,
    )


MODELS = {
    "linear": linear,
    "dropout": dropout,
    "embedding": embedding,
    "batch norm": batch_norm,
    "cnn": cnn,
    "wide and deep": None,
}
OPTIMIZERS = {
    "SGD": lambda: tf1.train.GradientDescentOptimizer(0.02),
    "Momentum": lambda: tf1.train.MomentumOptimizer(0.01, 0.9),
    "Adam": lambda: tf1.train.AdamOptimizer(0.01),
    "Adagrad": lambda: tf1.train.AdagradOptimizer(0.05),
    "FTRL": lambda: tf1.train.FtrlOptimizer(0.05, l1_regularization_strength=0.01),
}
