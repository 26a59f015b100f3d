"""How steps_per_run reaches the session: RunConfig, flag and environment."""

import logging
import re

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.patching.frozen import StockRunConfig

er.install()

VARIABLE = "ESTIMATOR_RUNTIME_STEPS_PER_RUN"


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.square(weight - features)
    step = tf.compat.v1.train.get_global_step()
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step)
    )


@pytest.fixture
def fused(caplog):
    """Return a function that trains, and gives the steps_per_run of its runs or None."""
    caplog.set_level(logging.INFO, "tensorflow.estimator_runtime")

    def train(config, steps=20):
        caplog.clear()
        estimator = tf.estimator.Estimator(model_fn, config=config)
        data = tf.data.Dataset.from_tensors
        estimator.train(lambda: data(1.0).repeat(), steps=steps)
        assert estimator.get_variable_value("global_step") == steps
        found = re.search(r"several steps per .*\(steps_per_run=(\w+);", caplog.text)
        return found and found[1]

    return train


def test_several_steps_run_in_one_call_by_default(tmp_path, fused):
    assert fused(tf.estimator.RunConfig(tmp_path / "a"), steps=2000) == "auto"
    config = tf.estimator.RunConfig(tmp_path / "b", steps_per_run=1)
    assert fused(config, steps=2000) is None


def test_a_run_config_says_how_many_steps_a_run_has(tmp_path, fused):
    assert fused(tf.estimator.RunConfig(tmp_path, steps_per_run=5)) == "5"


def test_the_environment_says_it_for_configs_that_do_not(tmp_path, monkeypatch, fused):
    monkeypatch.setenv(VARIABLE, "10")
    assert fused(tf.estimator.RunConfig(tmp_path / "a")) == "10"
    assert fused(tf.estimator.RunConfig(tmp_path / "b", steps_per_run=1)) is None
    assert fused(StockRunConfig(str(tmp_path / "c"))) == "10"


def test_a_session_of_ones_own_takes_it_from_the_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, "4")
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        stop = tf.compat.v1.train.StopAtStepHook(last_step=10)
        with er.MonitoredTrainingSession(hooks=[stop]) as session:
            values = []
            while not session.should_stop():
                values.append(session.run(step))
    assert values == [1, 2, 6, 9, 10]
