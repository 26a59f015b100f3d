"""How steps_per_run reaches the session: RunConfig, flag and environment."""

import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.patching.frozen import StockRunConfig

er.install()

VARIABLE = "ESTIMATOR_RUNTIME_STEPS_PER_RUN"


class CountRuns(tf.compat.v1.train.SessionRunHook):
    """Counts the steps that it sees; may be left out of any."""

    def __init__(self):
        self.runs = 0

    def steps_until_due(self, global_step):
        return None

    def after_run(self, run_context, run_values):
        self.runs += 1


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.square(weight - features)
    step = tf.compat.v1.train.get_global_step()
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step)
    )


def runs_of(config, steps=20):
    """Train; give the number of steps that a hook saw that may be left out."""
    count = CountRuns()
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(
        lambda: tf.data.Dataset.from_tensors(1.0).repeat(), steps=steps, hooks=[count]
    )
    assert estimator.get_variable_value("global_step") == steps
    return count.runs


def test_several_steps_run_in_one_call_by_default(tmp_path):
    assert runs_of(tf.estimator.RunConfig(tmp_path / "a"), steps=2000) < 1000
    config = tf.estimator.RunConfig(tmp_path / "b", steps_per_run=1)
    assert runs_of(config, steps=2000) == 2000


def test_a_run_config_says_how_many_steps_a_run_has(tmp_path):
    # The hook sees the first two steps and the last one, which run singly.
    assert runs_of(tf.estimator.RunConfig(tmp_path, steps_per_run=5)) == 3


def test_the_environment_says_it_for_configs_that_do_not(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "10")
    assert runs_of(tf.estimator.RunConfig(tmp_path / "a")) == 3
    assert runs_of(tf.estimator.RunConfig(tmp_path / "b", steps_per_run=1)) == 20
    assert runs_of(StockRunConfig(str(tmp_path / "c"))) == 3


def test_a_session_of_ones_own_takes_it_from_the_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, "4")
    count = CountRuns()
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        stop = tf.compat.v1.train.StopAtStepHook(last_step=10)
        with er.MonitoredTrainingSession(hooks=[count, stop]) as session:
            values = []
            while not session.should_stop():
                values.append(session.run(step))
    assert (values, count.runs) == ([1, 2, 6, 9, 10], 3)
