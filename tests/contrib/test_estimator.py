"""Heads of tf.contrib.estimator train with optimizers of TensorFlow 1."""

import os

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib import estimator
from estimator_runtime.errors import ConfigError

estimator_runtime.install()
tf1 = tf.compat.v1

_X = np.array([[1.0, 0.5], [-1.0, 2.0], [0.25, -3.0]], np.float32)
_LOGITS = {1: _X[:, :1], 2: _X, 3: np.concatenate([_X, -_X[:, :1]], 1)}


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _cross_entropy(labels, logits):
    p = _sigmoid(logits)
    return -labels * np.log(p) - (1 - labels) * np.log(1 - p)


def _softmax_loss(labels, logits):
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return -np.log(np.take_along_axis(p, labels, 1))


_BINARY = np.array([[1], [0], [1]])
_CLASSES = np.array([[2], [0], [1]])
_COUNTS = np.array([[1.0], [0.0], [3.0]], np.float32)
_SETS = np.array([[1, 0], [1, 1], [0, 0]])
_HEADS = [
    (
        estimator.binary_classification_head,
        _LOGITS[1],
        _BINARY,
        _cross_entropy(_BINARY, _LOGITS[1]).mean(),
    ),
    (
        lambda: estimator.multi_class_head(3),
        _LOGITS[3],
        _CLASSES,
        _softmax_loss(_CLASSES, _LOGITS[3]).mean(),
    ),
    (
        estimator.regression_head,
        _LOGITS[1],
        _COUNTS,
        np.square(_LOGITS[1] - _COUNTS).mean(),
    ),
    (
        lambda: estimator.poisson_regression_head(compute_full_loss=False),
        _LOGITS[1],
        _COUNTS,
        (np.exp(_LOGITS[1]) - _COUNTS * _LOGITS[1]).mean(),
    ),
    (
        estimator.logistic_regression_head,
        _LOGITS[1],
        _BINARY.astype(np.float32),
        _cross_entropy(_BINARY, _LOGITS[1]).mean(),
    ),
    (
        lambda: estimator.multi_label_head(2),
        _LOGITS[2],
        _SETS,
        _cross_entropy(_SETS, _LOGITS[2]).mean(),
    ),
]


@pytest.mark.parametrize(("make", "given", "labels", "loss"), _HEADS)
def test_a_head_trains_the_average_loss(make, given, labels, loss):
    with tf1.Graph().as_default(), tf1.Session() as session:
        tf1.train.create_global_step()
        factor = tf1.get_variable("factor", initializer=1.0)
        spec = make().create_estimator_spec(
            features={},
            mode="train",
            logits=factor * given,
            labels=tf1.constant(labels),
            optimizer=tf1.train.GradientDescentOptimizer(0.125),
        )
        gradient = tf1.gradients(spec.loss, factor)[0]
        session.run(tf1.global_variables_initializer())
        found, slope = session.run([spec.loss, gradient])
        assert found == pytest.approx(loss, rel=1e-5)
        session.run(spec.train_op)
        assert session.run([factor, tf1.train.get_global_step()]) == [
            pytest.approx(1 - 0.125 * slope),
            1,
        ]


@pytest.mark.parametrize(("make", "given", "labels", "loss"), _HEADS)
def test_an_estimator_with_a_head_evaluates_and_predicts(
    tmp_path, make, given, labels, loss
):
    def model_fn(features, labels, mode):
        bias = tf1.get_variable("bias", initializer=0.0)
        return make().create_estimator_spec(
            features,
            mode,
            features["x"] + bias,
            labels=labels,
            optimizer=tf1.train.GradientDescentOptimizer(0.0),
        )

    def rows():
        return tf1.data.Dataset.from_tensors(({"x": given}, labels))

    trained = tf1.estimator.Estimator(model_fn, os.fspath(tmp_path))
    trained.train(rows)
    metrics = trained.evaluate(rows)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert metrics["average_loss"] == pytest.approx(loss, rel=1e-5)
    assert len(list(trained.predict(rows))) == 3


def _two_heads():
    return [
        estimator.binary_classification_head(name="a"),
        estimator.regression_head(name="b"),
    ]


def _multi_spec(mode, **kwargs):
    head = estimator.multi_head(_two_heads(), [1.0, 2.0])
    assert (head.name, head.logits_dimension) == ("a_b", 2)
    labels = {"a": tf1.constant(_BINARY), "b": tf1.constant(_COUNTS)}
    return head.create_estimator_spec({}, mode, tf1.constant(_X), labels, **kwargs)


def test_several_heads_add_their_losses_by_weight():
    losses = [
        _cross_entropy(_BINARY, _X[:, :1]).mean(),
        np.square(_X[:, 1:] - _COUNTS).mean(),
    ]
    with tf1.Graph().as_default(), tf1.Session() as session:
        spec = _multi_spec("eval")
        assert {"accuracy/a", "average_loss/a", "loss/a", "loss/b"} <= set(
            spec.eval_metric_ops
        )
        assert session.run(spec.loss) == pytest.approx(losses[0] + 2 * losses[1])
        spec = _multi_spec("train", train_op_fn=lambda loss: tf1.print(loss))
        assert session.run(spec.loss) == pytest.approx(losses[0] + 2 * losses[1])
        with pytest.raises(ConfigError, match="either an optimizer"):
            _multi_spec("train")


def test_several_heads_predict_by_their_names():
    with tf1.Graph().as_default(), tf1.Session() as session:
        spec = _multi_spec("infer")
        value = session.run(spec.predictions[("b", "predictions")])
        np.testing.assert_array_equal(value, _X[:, 1:])
        assert {"serving_default", "a", "b", "predict"} <= set(spec.export_outputs)


@pytest.mark.parametrize(
    ("heads", "weights", "text"),
    [
        ([], None, "at least one"),
        ([estimator.regression_head], None, "a name of its own"),
        ([_two_heads, _two_heads], None, "a name of its own"),
        ([_two_heads], [1.0], "1 head_weights for 2"),
    ],
)
def test_heads_that_cannot_be_joined_are_refused(heads, weights, text):
    made = [each for make in heads for each in np.atleast_1d(np.array(make()))]
    with pytest.raises(ConfigError, match=text):
        estimator.multi_head(made, weights)


@pytest.mark.parametrize(("norm", "expected"), [(100.0, [-3.0, -4.0]), (1.0, None)])
def test_gradients_are_clipped_by_their_global_norm(norm, expected):
    with tf1.Graph().as_default(), tf1.Session() as session:
        a, b = (tf1.get_variable(name, initializer=0.0) for name in "ab")
        optimizer = tf1.train.GradientDescentOptimizer(1.0)
        train = estimator.clip_gradients_by_norm(optimizer, norm).minimize(
            3 * a + 4 * b
        )
        session.run(tf1.global_variables_initializer())
        session.run(train)
        # The norm of the gradient (3, 4) is 5.
        expected = expected or [-0.6, -0.8]
        assert session.run([a, b]) == pytest.approx(expected)


def test_features_are_forwarded_to_the_predictions(tmp_path):
    def model_fn(features, labels, mode):
        doubled = 2 * features["x"] * tf1.get_variable("one", initializer=1.0)
        return tf.estimator.EstimatorSpec(
            mode,
            predictions={"y": doubled},
            loss=tf1.reduce_sum(doubled),
            train_op=tf1.assign_add(tf1.train.get_global_step(), 1),
        )

    def rows():
        sparse = tf.sparse.from_dense([["a", ""], ["", "b"]])
        return tf1.data.Dataset.from_tensors(
            {"x": [1.0, 2.0], "key": [7, 8], "words": sparse}
        )

    plain = tf1.estimator.Estimator(model_fn, os.fspath(tmp_path))
    plain.train(rows)

    def predicted(*args):
        forwarding = estimator.forward_features(plain, *args)
        return [
            {name: np.asarray(value).tolist() for name, value in row.items()}
            for row in forwarding.predict(rows)
        ]

    assert predicted("key") == [{"y": 2.0, "key": 7}, {"y": 4.0, "key": 8}]
    assert predicted(["words"], {"words": "?"}) == [
        {"y": 2.0, "words": [b"a", b"?"]},
        {"y": 4.0, "words": [b"?", b"b"]},
    ]
    with pytest.raises(ConfigError, match="there is no feature 'z'"):
        predicted("z")


def test_a_model_for_one_device_is_unchanged():
    optimizer = tf1.train.GradientDescentOptimizer(1.0)
    assert estimator.replicate_model_fn(len) is len
    assert estimator.tower_optimizer(optimizer) is optimizer
    assert estimator.tower_optimizer(lambda: optimizer) is optimizer
    with pytest.raises(ConfigError, match="MirroredStrategy"):
        estimator.replicate_model_fn(len, devices=["/gpu:0", "/gpu:1"])
