"""The library tf-slim finds the names that TensorFlow has moved."""

import numpy as np
import pytest
import tensorflow as tf

import estimator_runtime

estimator_runtime.install()
tf1 = tf.compat.v1
slim = pytest.importorskip("tf_slim")
# tf-slim calls layers and constructors that have since been deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`:UserWarning")
_X = np.random.RandomState(0).normal(size=(6, 4)).astype(np.float32)


@pytest.mark.parametrize("is_training", [False, True])
def test_batch_norm_normalizes(is_training):
    with tf1.Graph().as_default(), tf1.Session() as session:
        output = slim.batch_norm(tf1.constant(_X), is_training=is_training)
        names = [each.op.name for each in tf1.global_variables()]
        assert names == [f"BatchNorm/{x}" for x in ("beta", "moving_mean")] + [
            "BatchNorm/moving_variance"
        ]
        session.run(tf1.global_variables_initializer())
        value = session.run(output)
    mean, variance = (_X.mean(0), _X.var(0)) if is_training else (0, 1)
    expected = (_X - mean) / np.sqrt(variance + 0.001)
    np.testing.assert_allclose(value, expected, atol=1e-5)


def test_optimize_loss_clips_decays_and_counts():
    from tf_slim.layers import optimize_loss

    with tf1.Graph().as_default(), tf1.Session() as session:
        step = tf1.train.create_global_step()
        w = tf1.get_variable("w", initializer=[3.0, 4.0])
        train = optimize_loss(
            tf1.reduce_sum(w**2),
            step,
            learning_rate=1.0,
            optimizer="SGD",
            clip_gradients=1.0,
            learning_rate_decay_fn=lambda rate, _: rate / 2,
            summaries=["loss", "learning_rate", "gradients", "gradient_norm"],
        )
        session.run(tf1.global_variables_initializer())
        assert session.run(train) == 25.0
        # The gradient (6, 8) has the norm 10.
        assert session.run(w).tolist() == pytest.approx([2.7, 3.6])
        assert session.run(step) == 1
        assert len(tf1.get_collection(tf1.GraphKeys.SUMMARIES)) >= 5
