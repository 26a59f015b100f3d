"""MirroredStrategy on two virtual CPU devices, with eager execution on.

On stock TensorFlow this never finishes its first step. Made while eager execution
is on, the strategy picks CollectiveAllReduce in its RING form: the all-reduce of
each variable is an op per replica that blocks its thread until the op of the other
replica has arrived. In the Estimator's session these ops share one small pool of
threads; once it is full of ops whose partners wait in the queue, nothing moves.

Virtual devices have to be set before TensorFlow starts its runtime, so the program
runs in a process of its own: this file, run as a script.
"""

import json
import sys

import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402
from tensorflow.python.distribute import distribute_config  # noqa: E402


@pytest.fixture(scope="module")
def runs(run_python, tmp_path_factory):
    """What the program below printed of its two runs, strategies given each way."""
    program = run_python(__file__, tmp_path_factory.mktemp("mirrored"), timeout=180)
    assert program.returncode == 0, program.stderr
    return json.loads(program.stdout.splitlines()[-1])


def test_a_model_learns_on_two_replicas(runs):
    for run in runs:
        assert run["untrained"]["accuracy"] < 0.3
        assert run["trained"]["accuracy"] >= 0.9
        assert run["trained"]["global_step"] == 200


def test_each_variable_has_equal_copies_on_both_devices(runs):
    names = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    for run in runs:
        assert run["devices"] == {name: [0, 1] for name in names}
        assert run["equal on both devices"] == dict.fromkeys(names, True)


def test_equal_seeds_give_equal_variables_on_two_replicas(runs):
    first, second = runs
    assert first["variables"] == second["variables"]


def model_fn(features, labels, mode):
    """One hidden layer of tf.compat.v1.layers, dropout and Adam."""
    hidden = tf.compat.v1.layers.dense(features["pixels"], 64, tf.nn.relu)
    hidden = tf.compat.v1.layers.dropout(hidden, 0.2, training=mode == "train")
    logits = tf.compat.v1.layers.dense(hidden, 10)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.005)
    accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, tf.compat.v1.train.get_global_step()),
        eval_metric_ops={"accuracy": accuracy},
    )


class Replicas(tf.estimator.SessionRunHook):
    """Tells where the copies of each variable are, and whether they end up equal."""

    def __init__(self, strategy):
        self.strategy = strategy

    def begin(self):
        self.copies = {
            variable.op.name: self.strategy.experimental_local_results(variable)
            for variable in tf.compat.v1.trainable_variables()
        }

    def end(self, session):
        self.devices = {
            name: [
                tf.DeviceSpec.from_string(copy.device).device_index for copy in copies
            ]
            for name, copies in self.copies.items()
        }
        self.equal = {
            name: bool((first == second).all())
            for name, (first, second) in session.run(self.copies).items()
        }


def main(folder):
    """Train twice with one seed, and print what came out as JSON."""
    from conftest import load_digits  # beside this script

    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    assert tf.executing_eagerly()
    digits = load_digits()
    strategies = [tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]) for _ in two]
    configs = [
        tf.estimator.RunConfig(
            f"{folder}/arguments",
            tf_random_seed=7,
            train_distribute=strategies[0],
            eval_distribute=strategies[0],
        ),
        tf.estimator.RunConfig(
            f"{folder}/distribute_config",
            tf_random_seed=7,
            experimental_distribute=distribute_config.DistributeConfig(
                train_distribute=strategies[1], eval_distribute=strategies[1]
            ),
        ),
    ]
    print(json.dumps([train(digits, config) for config in configs]))


def train(digits, config):
    """Train on two replicas, and report how it went."""
    estimator = tf.estimator.Estimator(model_fn, config=config)

    def held_out():
        # A batch for each replica. With a replica left over in the last round, it
        # depends on the order of threads whether the others' batches count.
        return digits.held_out()().unbatch().batch(149)

    untrained = estimator.evaluate(held_out)
    replicas = Replicas(config.train_distribute)

    def to_train():
        return digits.to_train()().unbatch().batch(32, drop_remainder=True)

    estimator.train(to_train, steps=200, hooks=[replicas])
    trained = estimator.evaluate(held_out)
    return {
        "untrained": {name: float(value) for name, value in untrained.items()},
        "trained": {name: float(value) for name, value in trained.items()},
        "devices": replicas.devices,
        "equal on both devices": replicas.equal,
        "variables": {
            name: estimator.get_variable_value(name).tolist()
            for name in estimator.get_variable_names()
        },
    }


if __name__ == "__main__":
    main(sys.argv[1])
