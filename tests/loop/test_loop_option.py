"""The option `loop` says how much of this package's step loop there is."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.config import options
from estimator_runtime.errors import ConfigError

tf1 = tf.compat.v1
train = tf1.train
VARIABLE = "ESTIMATOR_RUNTIME_LOOP"


@pytest.mark.parametrize("loop", ["plans", "stock"])
@pytest.mark.parametrize("steps_per_run", [1, 7, "auto"])
def test_each_loop_trains_the_same_step_by_step_and_says_so(
    loop, steps_per_run, training, caplog
):
    this = training.replace(config={"loop": loop}, model="dropout")
    assert this.ours(steps_per_run) == training.replace(model="dropout").stock()
    told = [
        record.getMessage()
        for record in caplog.records
        if record.name == "estimator_runtime.loop.run_length"
    ]
    assert told == (
        []
        if steps_per_run in (1, "auto")  # which asks for no particular loop
        else [
            f"steps_per_run={steps_per_run}: steps are run one by one, because the "
            f"step is run by the loop {loop!r}"
        ]
    )


@pytest.mark.parametrize("loop", ["plans", "stock"])
def test_a_session_that_is_lost_is_made_again_by_each_loop(loop):
    with tf.Graph().as_default(), options.use(options.TrainingOptions(loop=loop)):
        step = train.get_or_create_global_step().assign_add(1)
        with er.MonitoredTrainingSession() as session:
            first = [session.run(step) for _ in range(3)]
            with session._coordinated_creator.coord.stop_on_exception():
                raise tf.errors.AbortedError(None, None, "lost")
            assert not session.should_stop()  # and makes a new session
            assert [*first, session.run(step)] == [1, 2, 3, 1]


def test_a_config_the_environment_and_the_default_say_it_in_this_order(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert er.RunConfig().loop == "auto"
    monkeypatch.setenv(VARIABLE, "stock")
    assert er.RunConfig().loop == "stock"
    config = er.RunConfig(loop="plans")
    assert (config.loop, config.replace(loop=None).loop) == ("plans", "stock")
    assert config.replace(save_summary_steps=7).loop == "plans"


@pytest.mark.parametrize("value", ["", "fast", "Stock", 1, True])
def test_what_is_no_loop_is_refused(value):
    for given in (er.RunConfig, er.RunConfig().replace):
        with pytest.raises(ConfigError) as raised:
            given(loop=value)
        assert str(raised.value) == (
            f"RunConfig: loop is {value!r}; give auto, plans, stock"
        )
    with pytest.raises(ConfigError) as raised:
        options.TrainingOptions.from_environ({VARIABLE: str(value)})
    assert str(raised.value) == f"{VARIABLE} is {str(value)!r}; give auto, plans, stock"
