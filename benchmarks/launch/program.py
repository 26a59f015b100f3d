"""The program of the launch benchmark: prints when its task starts, and when it steps.

Run by plain python it is stock TensorFlow's; it knows nothing of the runtime.
"""

import sys
import time

sys.stdout.write(f"started {time.time()}\n")
sys.stdout.flush()

import tensorflow as tf  # noqa: E402


def _model_fn(features, labels, mode):
    net = tf.compat.v1.layers.dense(features, 32, tf.nn.relu)
    loss = tf.reduce_mean(tf.square(tf.compat.v1.layers.dense(net, 1) - labels))
    train_op = None
    if mode == tf.estimator.ModeKeys.TRAIN:
        optimizer = tf.compat.v1.train.AdamOptimizer()
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _input_fn():
    return tf.data.Dataset.from_tensors((tf.ones([32, 8]), tf.ones([32, 1]))).repeat()


class _Stamp(tf.estimator.SessionRunHook):
    """Prints the time of the first step of this task."""

    def __init__(self):
        self._has_printed = False

    def after_run(self, run_context, run_values):
        if not self._has_printed:
            self._has_printed = True
            # In one piece, as other tasks write to the same file.
            sys.stdout.write(f"stepped {time.time()}\n")
            sys.stdout.flush()
        # It is the start that is measured: leave the processors to those not yet there.
        time.sleep(0.05)


def _train(model_dir, strategy):
    if strategy == "mwms":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = None
    config = tf.estimator.RunConfig(model_dir, train_distribute=strategy)
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(_model_fn, config=config),
        tf.estimator.TrainSpec(_input_fn, max_steps=10**6, hooks=[_Stamp()]),
        tf.estimator.EvalSpec(_input_fn, steps=1),
    )


if __name__ == "__main__":
    _train(*sys.argv[1:])
