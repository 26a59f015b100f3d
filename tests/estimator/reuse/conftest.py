"""Estimators in pairs: one as ever, one that reuses graphs, on the same checkpoints."""

import dataclasses
import logging

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402 (after install, as a program would)

tf1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two Estimators with the same model_dir, and how often each calls model_fn.

    Attributes:
        stock: The one that builds a graph at each call.
        kept: The one with `reuse_graphs=True`.
        calls: The modes in which `kept` has called its model_fn.
    """

    stock: tf.estimator.Estimator
    kept: tf.estimator.Estimator
    calls: list

    def train(self, input_fn, steps=2):
        """Train for some steps."""
        self.stock.train(input_fn, steps=steps)

    def assert_equal(self, input_fn, times=2, **kwargs):
        """Evaluate and predict several times, and compare with the first Estimator."""
        evaluate = {
            k: v for k, v in kwargs.items() if k in ("steps", "checkpoint_path")
        }
        predict = {k: v for k, v in kwargs.items() if k != "steps"}
        metrics = self.stock.evaluate(input_fn, **evaluate)
        rows = read(self.stock.predict(input_fn, **predict))
        for _ in range(times):
            assert_identical(self.kept.evaluate(input_fn, **evaluate), metrics)
            found = read(self.kept.predict(input_fn, **predict))
            assert_identical(found, rows)
        return metrics, rows


def read(rows):
    """Read predictions, as copies."""
    return [
        {k: np.array(v) for k, v in row.items()} if isinstance(row, dict) else row
        for row in rows
    ]


def assert_identical(found, expected):
    """Compare to the bit: values, types, keys and their order."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_identical(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_identical(a, b)
    else:
        a, b = np.asarray(found), np.asarray(expected)
        assert (a.dtype, a.shape, a.tolist()) == (b.dtype, b.shape, b.tolist())


@pytest.fixture
def pair(tmp_path):
    """Return a function that makes a `Pair` of a model_fn, with `params` or none."""

    def pair(model_fn, config=None, **kwargs):
        calls = []

        def counting(features, labels, mode, params, config):
            calls.append(mode)
            names = model_fn.__code__.co_varnames[: model_fn.__code__.co_argcount]
            given = {
                "features": features,
                "labels": labels,
                "mode": mode,
                "params": params,
                "config": config,
            }
            return model_fn(**{name: given[name] for name in names})

        def estimator(reuse_graphs):
            own = er.RunConfig(tmp_path, reuse_graphs=reuse_graphs, **(config or {}))
            chosen = counting if reuse_graphs else model_fn
            arguments = {"params": {}, **kwargs} if reuse_graphs else kwargs
            return tf.estimator.Estimator(chosen, config=own, **arguments)

        return Pair(estimator(False), estimator(True), calls)

    return pair


@pytest.fixture
def refusals():
    """Return the list of what the Estimators say about graphs that they do not reuse."""
    lines = []

    class Handler(logging.Handler):
        def emit(self, record):
            text = record.getMessage()
            if text.startswith("reuse_graphs: "):
                assert record.levelno == logging.INFO
                lines.append(text.removeprefix("reuse_graphs: "))

    logger = logging.getLogger("estimator_runtime.estimator.reuse.cache")
    handler, level = Handler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def total(value):
    """Return one number for each row of features in any structure."""
    if value is None:
        return 0.0
    if isinstance(value, dict):
        return tf.add_n([total(value[name]) for name in value])
    if isinstance(value, (list, tuple)):
        return tf.add_n([total(each) for each in value])
    if isinstance(value, tf.SparseTensor):
        value = tf.sparse.to_dense(value)
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    if value.dtype == tf.string:
        value = tf.strings.to_hash_bucket_fast(value, 7)
    value = tf.cast(value, tf.float32)
    axes = list(range(1, value.shape.rank))
    return tf.reduce_sum(value, axes) if axes else value


def linear_model(features, labels, mode):
    """Return a linear model of the `total` of features, for labels of any structure."""
    weight = tf1.get_variable("weight", [], initializer=tf1.ones_initializer())
    predicted = weight * total(features)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(
            mode, predictions={"predicted": predicted, "twice": 2 * predicted}
        )
    error = predicted - total(labels)
    loss = tf.reduce_mean(tf.square(error))
    step = tf1.train.get_global_step()
    optimizer = tf1.train.GradientDescentOptimizer(0.001)
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, step),
        eval_metric_ops={
            "error": tf1.metrics.mean(error),
            "rms": tf1.metrics.root_mean_squared_error(0 * error, error),
        },
    )


@pytest.fixture
def linear():
    """Return the model_fn of a linear model."""
    return linear_model


@pytest.fixture
def rows():
    """Return a function that returns an input_fn of dicts of numbers, in batches."""

    def rows(count=10, batch=4, seed=0):
        draw = np.random.RandomState(seed)
        x, y = draw.rand(count, 3).astype("f"), draw.rand(count).astype("f")
        return lambda: tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(batch)

    return rows


@pytest.fixture
def assert_equal():
    """Return the function that compares results to the bit."""
    return assert_identical
