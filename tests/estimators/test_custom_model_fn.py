"""A model_fn as people wrote them: tf.compat.v1.layers, dropout and Adam."""

import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402

ModeKeys = tf.estimator.ModeKeys
# The list reads no device's memory and runs no op.
GPUS = tf.config.list_physical_devices("GPU")


def model_fn(features, labels, mode, params):
    """One hidden layer with dropout, on the device that `params` names."""
    with tf.device(params.get("device")):
        hidden = tf.compat.v1.layers.dense(features["pixels"], 64, tf.nn.relu)
        hidden = tf.compat.v1.layers.dropout(hidden, 0.3, training=mode == "train")
        logits = tf.compat.v1.layers.dense(hidden, 10)
    if mode == ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, eval_metric_ops={"accuracy": accuracy}
        )
    optimizer = tf.compat.v1.train.AdamOptimizer(0.005)
    train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Placement(tf.estimator.SessionRunHook):
    """Tells the device of each op that took part in the last step."""

    def before_run(self, run_context):
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        return tf.estimator.SessionRunArgs({}, options=options)

    def after_run(self, run_context, run_values):
        self.device = {
            node.name: tf.DeviceSpec.from_string(node.device)
            for graph in run_values.run_metadata.partition_graphs
            for node in graph.node
        }


@pytest.mark.parametrize(
    "device",
    [
        "CPU:0",
        pytest.param(
            "GPU:0", marks=pytest.mark.skipif(not GPUS, reason="no GPU in this machine")
        ),
    ],
)
def test_a_model_trains_on_the_device_it_asks_for(device, digits, tmp_path):
    session_config = tf.compat.v1.ConfigProto(
        allow_soft_placement=True,  # for the ops that have no GPU kernel
        gpu_options=tf.compat.v1.GPUOptions(allow_growth=True),
    )
    config = tf.estimator.RunConfig(
        tmp_path, tf_random_seed=1, session_config=session_config
    )
    estimator = tf.estimator.Estimator(
        model_fn, config=config, params={"device": f"/{device}"}
    )
    placement = Placement()

    estimator.train(digits.to_train(), steps=300, hooks=[placement])

    asked = tf.DeviceSpec.from_string(f"/{device}")
    for name in (
        "dense/kernel",
        "gradients/dense/MatMul_grad/MatMul_1",
        "Adam/update_dense/kernel/ResourceApplyAdam",
    ):
        got = placement.device[name]
        assert (got.device_type, got.device_index) == (
            asked.device_type,
            asked.device_index,
        ), name
    assert estimator.evaluate(digits.held_out())["accuracy"] >= 0.9
