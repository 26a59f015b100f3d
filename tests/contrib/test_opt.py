"""Optimizers of tf.contrib.opt agree with their formulas, for both kinds of variables."""

import os

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.contrib import opt
from estimator_runtime.errors import ConfigError

tf1 = tf.compat.v1
_START = np.array([[1.0, -2.0], [3.0, 0.5], [0.25, 4.0]])
_GRADS = [
    np.array([[0.5, 1.0], [-1.0, 2.0], [0.0, 0.125]]),
    np.array([[2.0, -1.0], [0.5, 0.5], [1.0, -3.0]]),
]
_ROWS = [2, 0]  # Those of the sparse gradients; row 1 has none.


def _trained(optimizer, *, is_resource, is_sparse=False, **kwargs):
    """Return a variable after a step for each of the gradients."""
    with tf1.Graph().as_default(), tf1.Session() as session:
        var = tf1.get_variable(
            "w", initializer=tf1.constant(_START), use_resource=is_resource
        )
        given = tf1.placeholder(tf1.float64, [3, 2])
        grad = given
        if is_sparse:
            # The second half of a gradient of 2 comes from a row that is there twice.
            rows = tf1.gather(given, [2, 0])
            values = tf1.concat([rows / 2, rows / 2], 0)
            grad = tf.IndexedSlices(values, tf1.constant(_ROWS * 2), [3, 2])
        train = optimizer().apply_gradients([(grad, var)], **kwargs)
        session.run(tf1.global_variables_initializer())
        for each in _GRADS:
            session.run(train, {given: each})
        return session.run(var)


def _adam(weight_decay=0.0, rows=(0, 1, 2), rate=0.1):
    w, m, v = _START.copy(), np.zeros([3, 2]), np.zeros([3, 2])
    rows = list(rows)
    for step, grad in enumerate(_GRADS, start=1):
        w[rows] -= weight_decay * w[rows]
        m[rows] = 0.9 * m[rows] + 0.1 * grad[rows]
        v[rows] = 0.999 * v[rows] + 0.001 * grad[rows] ** 2
        scale = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        w[rows] -= scale * m[rows] / (np.sqrt(v[rows]) + 1e-8)
    return w


both = pytest.mark.parametrize("is_resource", [False, True])


@both
def test_adamw_decays_before_each_step(is_resource):
    trained = _trained(
        lambda: opt.AdamWOptimizer(0.01, learning_rate=0.1), is_resource=is_resource
    )
    np.testing.assert_allclose(trained, _adam(weight_decay=0.01), rtol=1e-5)


@both
def test_adamw_decays_the_rows_of_a_sparse_gradient(is_resource):
    trained = _trained(
        lambda: opt.AdamWOptimizer(lambda: tf1.constant(0.01), learning_rate=0.1),
        is_resource=is_resource,
        is_sparse=True,
    )
    # Adam itself moves all rows; the others have no gradient, and do not move yet.
    np.testing.assert_allclose(trained, _adam(0.01, rows=_ROWS), rtol=1e-5)


@both
@pytest.mark.parametrize("is_nesterov", [False, True])
def test_momentumw_is_momentum_with_decay(is_resource, is_nesterov):
    trained = _trained(
        lambda: opt.MomentumWOptimizer(0.01, 0.1, 0.9, use_nesterov=is_nesterov),
        is_resource=is_resource,
    )
    w, velocity = _START.copy(), np.zeros([3, 2])
    for grad in _GRADS:
        w -= 0.01 * w
        velocity = 0.9 * velocity + grad
        w -= 0.1 * (grad + 0.9 * velocity if is_nesterov else velocity)
    np.testing.assert_allclose(trained, w, rtol=1e-5)


@both
def test_any_optimizer_can_be_extended(is_resource):
    extended = opt.extend_with_decoupled_weight_decay(
        tf1.train.GradientDescentOptimizer
    )
    trained = _trained(
        lambda: extended(weight_decay=0.5, learning_rate=0.1), is_resource=is_resource
    )
    w = _START
    for grad in _GRADS:
        w = 0.5 * w - 0.1 * grad
    np.testing.assert_allclose(trained, w, rtol=1e-5)


def test_only_the_variables_given_decay():
    with tf1.Graph().as_default(), tf1.Session() as session:
        a, b = (tf1.get_variable(name, initializer=2.0) for name in "ab")
        train = opt.MomentumWOptimizer(0.25, 1.0, 0.0).minimize(
            3 * a + 3 * b, decay_var_list=[b]
        )
        session.run(tf1.global_variables_initializer())
        session.run(train)
        assert session.run([a, b]) == [-1.0, -1.5]


@both
def test_lazy_adam_moves_only_rows_with_a_gradient(is_resource):
    trained = _trained(
        lambda: opt.LazyAdamOptimizer(0.1), is_resource=is_resource, is_sparse=True
    )
    np.testing.assert_allclose(trained, _adam(rows=_ROWS), rtol=1e-5)
    dense = _trained(lambda: opt.LazyAdamOptimizer(0.1), is_resource=is_resource)
    np.testing.assert_allclose(dense, _adam(), rtol=1e-5)


@both
def test_averages_are_saved_under_the_names_of_the_variables(tmp_path, is_resource):
    path = os.fspath(tmp_path / "model")
    with tf1.Graph().as_default(), tf1.Session() as session:
        w = tf1.get_variable("w", initializer=8.0, use_resource=is_resource)
        optimizer = opt.MovingAverageOptimizer(
            tf1.train.GradientDescentOptimizer(1.0), average_decay=0.5
        )
        with pytest.raises(ConfigError, match="call minimize"):
            optimizer.swapping_saver()
        train = optimizer.minimize(2.0 * w)
        every = {each.op.name: each for each in tf1.global_variables()}
        saver = optimizer.swapping_saver(every if is_resource else None)
        with pytest.raises(ConfigError, match="give both"):
            optimizer.swapping_saver([w])
        session.run(w.initializer)  # The average starts from it.
        session.run(tf1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        saver.save(session, path, write_meta_graph=False)
        session.run(tf1.global_variables_initializer())
        saver.restore(session, path)
        assert session.run(w) == 4.0
    names = [name for name, _ in tf.train.list_variables(path)]
    saved = {name: tf.train.load_variable(path, name) for name in names}
    # From 8 to 6 and 4: 0.5 * 8 + 0.5 * 6, and then 0.5 * 7 + 0.5 * 4.
    assert saved == {"w": 5.5, "w/ExponentialMovingAverage": 4.0}


@both
def test_a_late_read_of_a_variable_sees_it_before_the_decay(is_resource):
    with tf1.Graph().as_default(), tf1.Session() as session:
        w = tf1.get_variable("w", initializer=2.0, use_resource=is_resource)
        extended = opt.extend_with_decoupled_weight_decay(
            tf1.train.GradientDescentOptimizer
        )
        loss = tf1.cond(
            tf1.placeholder_with_default(True, []),
            lambda: tf1.square(w.read_value()),
            lambda: 0.0,
        )
        train = extended(weight_decay=0.5, learning_rate=0.25).minimize(loss)
        session.run(tf1.global_variables_initializer())
        session.run(train)
        # Decayed to 1.0, less a quarter of the gradient 4.0.
        assert session.run(w) == 0.0
