"""Programs in TensorFlow 1 mode, with reference variables, reuse graphs too."""

PROGRAM = """
import sys
import estimator_runtime as er

er.install()

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.disable_resource_variables()
x = np.arange(30, dtype="f").reshape(10, 3)
calls = []


def model_fn(features, labels, mode):
    calls.append(mode)
    kinds = {tf.get_variable("w", [3, 1]).op.type, "VariableV2"}
    assert kinds == {"VariableV2"}, kinds
    with tf.variable_scope("", reuse=True):
        y = tf.matmul(features["x"], tf.get_variable("w", [3, 1]))[:, 0]
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y})
    loss = tf.reduce_mean(tf.square(y - labels))
    metrics = {"error": tf.metrics.mean(y - labels)}
    train_op = tf.train.AdamOptimizer().minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metric_ops=metrics
    )


inputs = tf.estimator.inputs.numpy_input_fn(
    {"x": x}, x[:, 0], batch_size=4, num_epochs=1, shuffle=False
)
stock, kept = (
    tf.estimator.Estimator(model_fn, config=er.RunConfig(sys.argv[1], reuse_graphs=each))
    for each in (False, True)
)
for _ in range(2):
    stock.train(inputs)
    expected = stock.evaluate(inputs), [row["y"] for row in stock.predict(inputs)]
    before = len(calls)
    for _ in range(2):
        assert (kept.evaluate(inputs), [r["y"] for r in kept.predict(inputs)]) == expected
print("built by the reusing Estimator at the last checkpoint:", len(calls) - before)
"""


def test_results_are_equal_with_reference_variables(run_python, tmp_path):
    done = run_python("-c", PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr
    last = "built by the reusing Estimator at the last checkpoint: 0"
    assert done.stdout.splitlines()[-1] == last
