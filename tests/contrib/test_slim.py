"""tf-slim, which stands for contrib's layers, works on today's TensorFlow."""

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


def test_layers_take_their_arguments_from_a_scope():
    with tf1.Graph().as_default(), tf1.Session() as session:
        with slim.arg_scope(
            [slim.fully_connected],
            activation_fn=None,
            weights_initializer=tf1.ones_initializer(),
            weights_regularizer=slim.l2_regularizer(0.5),
        ):
            output = slim.fully_connected(tf1.constant(_X), 2, scope="fc")
        loss = tf1.losses.get_regularization_loss()
        session.run(tf1.global_variables_initializer())
        value, penalty = session.run([output, loss])
    np.testing.assert_allclose(value, np.tile(_X.sum(1, keepdims=True), 2), rtol=1e-5)
    assert penalty == pytest.approx(0.5 * 8 / 2)


def test_metrics_stream():
    from tf_slim import metrics

    labels, scores = np.array([1.0, 0, 1, 0]), np.array([0.9, 0.2, 0.6, 0.7])
    with tf1.Graph().as_default(), tf1.Session() as session:
        correlation = metrics.streaming_pearson_correlation(
            tf1.constant(scores, tf1.float32), tf1.constant(labels, tf1.float32)
        )
        f1 = metrics.f1_score(tf1.constant(labels), tf1.constant(scores))
        concatenated = metrics.streaming_concat(tf1.constant(labels))
        session.run(tf1.local_variables_initializer())
        values = session.run([correlation[1], f1[1]])
        session.run(concatenated[1])
        session.run(concatenated[1])
        assert session.run(concatenated[0]).tolist() == [*labels, *labels]
    assert values[0] == pytest.approx(np.corrcoef(scores, labels)[0, 1], rel=1e-4)
    # The best threshold takes all but the second: precision 2/3, recall 1.
    assert values[1] == pytest.approx(0.8, abs=0.01)


def test_variables_of_slim_are_in_their_collections():
    from tf_slim.ops import variables

    with tf1.Graph().as_default(), tf1.Session() as session:
        local = variables.local_variable(3.0, name="local")
        model = slim.model_variable("model", [2], initializer=tf1.zeros_initializer())
        assert tf1.local_variables() == [local]
        assert slim.get_model_variables() == [model]
        session.run(tf1.local_variables_initializer())
        assert session.run(local) == 3.0


def test_a_network_of_slim_is_built():
    from tf_slim.nets import resnet_v2

    with tf1.Graph().as_default():
        with slim.arg_scope(resnet_v2.resnet_arg_scope()):
            logits, _ = resnet_v2.resnet_v2_50(
                tf1.zeros([1, 32, 32, 3]), 10, is_training=True
            )
        assert logits.shape.as_list() == [1, 1, 1, 10]
