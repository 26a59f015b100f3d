"""How steps_per_run reaches the session: RunConfig, flag and environment."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.errors import ConfigError
from estimator_runtime.loop import session as loop_session
from estimator_runtime.loop.fusion import session as fusion_session
from estimator_runtime.loop.fusion.session import FusedSession, Steps
from estimator_runtime.loop.run_length import RunLength
from estimator_runtime.patching.frozen import StockRunConfig

er.install()

VARIABLE = "ESTIMATOR_RUNTIME_STEPS_PER_RUN"


class CountRuns(tf.compat.v1.train.SessionRunHook):
    """Counts the calls of the session; may be left out of any step."""

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
    """Train; give the number of calls of the session that it took."""
    count = CountRuns()
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(
        lambda: tf.data.Dataset.from_tensors(1.0).repeat(), steps=steps, hooks=[count]
    )
    assert estimator.get_variable_value("global_step") == steps
    return count.runs


def test_single_steps_are_the_default(tmp_path):
    assert runs_of(tf.estimator.RunConfig(tmp_path)) == 20


def test_a_run_config_says_how_many_steps_a_run_has(tmp_path):
    # Step 1 is seen by the hooks that log and summarize; then 5, 5, 5 and 4.
    assert runs_of(tf.estimator.RunConfig(tmp_path, steps_per_run=5)) == 5


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
    # The first call is one step: another one might follow that takes turns with it.
    assert (values, count.runs) == ([1, 5, 9, 10], 4)


def test_replace_changes_it_and_keeps_it():
    config = tf.estimator.RunConfig(steps_per_run=5)
    assert config.replace(save_summary_steps=7).steps_per_run == 5
    assert config.replace(steps_per_run="auto").steps_per_run == "auto"
    assert (config.steps_per_run, config.replace(steps_per_run=None).steps_per_run) == (
        5,
        1,
    )


class Clock:
    """A clock by which each step of a session takes so long.

    It is read before and after each call of the session.
    """

    def __init__(self, secs_per_step):
        self.secs_per_step = secs_per_step
        self.steps = []  # of each call

    def __call__(self):
        return self.secs_per_step * sum(self.steps)

    def measure(self, monkeypatch):
        """Make sessions use this clock."""

        class Timed(FusedSession):
            def __init__(session, *args, **kwargs):
                super().__init__(*args, **kwargs, clock=self)

        class Counted(Steps):
            def run(steps, *args):
                completed, outputs = super().run(*args)
                self.steps.append(completed)
                return completed, outputs

        monkeypatch.setattr(loop_session, "FusedSession", Timed)
        monkeypatch.setattr(loop_session, "RunLength", RunLength)
        monkeypatch.setattr(fusion_session, "Steps", Counted)
        return self


@pytest.mark.parametrize(
    ("secs_per_step", "grace_secs", "steps"),
    [
        (0.001, "30", [1, 2, 4, 8, 16, 32, 37]),
        (0.04, "30", [1, 2, 4, 8, 16, 16, 16, 16, 16, 5]),
        (0.4, "30", [1] + 49 * [2] + [1]),
        (0.04, "5", [1, 2, 4] + 11 * [8] + [5]),
        (0.4, "5", 100 * [1]),
    ],
)
def test_a_call_of_the_session_takes_a_small_part_of_the_grace(
    secs_per_step, grace_secs, steps, tmp_path, monkeypatch
):
    monkeypatch.setenv("ESTIMATOR_RUNTIME_STOP_GRACE_SECS", grace_secs)
    clock = Clock(secs_per_step).measure(monkeypatch)
    config = tf.estimator.RunConfig(tmp_path, steps_per_run=100)
    runs_of(config, steps=100)
    assert clock.steps == steps


def test_how_long_calls_of_the_session_are_changes_no_result(tmp_path, monkeypatch):
    def trained(name, steps_per_run, secs_per_step):
        clock = Clock(secs_per_step).measure(monkeypatch)
        config = tf.estimator.RunConfig(
            tmp_path / name,
            tf_random_seed=1,
            steps_per_run=steps_per_run,
            save_checkpoints_steps=30,
        )
        estimator = tf.estimator.Estimator(model_fn, config=config)
        estimator.train(lambda: tf.data.Dataset.from_tensors(1.0).repeat(), steps=100)
        saved = tf.train.get_checkpoint_state(str(tmp_path / name))
        paths = saved.all_model_checkpoint_paths
        values = [
            tf.train.load_checkpoint(path).get_tensor("weight").tobytes()
            for path in paths
        ]
        return clock.steps, [p.rpartition("-")[2] for p in paths], values

    long, *expected = trained("long", 100, 0.0)
    short, *found = trained("short", 100, 0.4)
    assert found == expected
    assert expected[0] == ["0", "30", "60", "90", "100"]
    assert (max(long), max(short)) == (30, 2)


@pytest.mark.parametrize("value", [0, -3, 1.5, True, "fast", ""])
def test_what_is_no_number_of_steps_is_refused(value):
    for given in (er.RunConfig, er.RunConfig().replace):
        with pytest.raises(ConfigError, match=r"^RunConfig: steps_per_run is .*") as e:
            given(steps_per_run=value)
        assert str(e.value).endswith(
            'give a whole number of steps, 1 or more, or "auto"'
        )
