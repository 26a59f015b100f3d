"""Checkpoints whose interval follows what they cost, and what that is told to."""

import types

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.checkpoint import interval
from estimator_runtime.checkpoint.hook import CheckpointHook
from estimator_runtime.config import options
from estimator_runtime.contrib import learn
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching.frozen import StockRunConfig

er.install()

from tensorflow_estimator.python.estimator.tpu import tpu_config  # noqa: E402

tf1 = tf.compat.v1
train = tf1.train
VARIABLE = "ESTIMATOR_RUNTIME_CHECKPOINT_OVERHEAD"


@pytest.mark.parametrize(
    ("overhead", "cost_secs", "secs"),
    [
        (0.01, 0.5, 50),
        (0.1, 0.5, 10),  # no less
        (0.01, 0.0, 10),
        (0.01, 100.0, 1800),  # no more
    ],
)
def test_checkpoints_take_at_most_their_part_of_the_time(overhead, cost_secs, secs):
    assert interval.at_cost(overhead, cost_secs) == secs


def overhead_of(config):
    return (
        config.checkpoint_overhead,
        config.save_checkpoints_secs,
        config.save_checkpoints_steps,
    )


def test_a_config_has_an_overhead_in_place_of_an_interval(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    config = er.RunConfig(checkpoint_overhead=0.02)
    assert overhead_of(config) == (0.02, 600, None)
    assert overhead_of(config.replace(tf_random_seed=1)) == (0.02, 600, None)
    assert overhead_of(config.replace(save_checkpoints_steps=5)) == (None, None, 5)
    assert overhead_of(config.replace(checkpoint_overhead=0.5)) == (0.5, 600, None)
    assert overhead_of(config.replace(checkpoint_overhead=None)) == (None, 600, None)
    assert overhead_of(er.RunConfig()) == (None, 600, None)
    changed = er.RunConfig(save_checkpoints_steps=5).replace(checkpoint_overhead=0.1)
    assert overhead_of(changed) == (0.1, 600, None)


def test_the_environment_has_a_say_where_no_interval_is_given(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0.05")
    assert overhead_of(er.RunConfig()) == (0.05, 600, None)
    assert overhead_of(er.RunConfig(checkpoint_overhead=0.1)) == (0.1, 600, None)
    assert overhead_of(er.RunConfig(save_checkpoints_secs=60)) == (None, 60, None)
    off = er.RunConfig(save_checkpoints_secs=None, save_checkpoints_steps=None)
    assert overhead_of(off) == (None, None, None)


@pytest.mark.filterwarnings("ignore:.*learn.RunConfig is:DeprecationWarning")
@pytest.mark.parametrize(
    "kind", [tpu_config.RunConfig, StockRunConfig, learn.RunConfig]
)
def test_configs_of_other_classes_follow_the_environment_too(
    kind, now, monkeypatch, tmp_path
):
    monkeypatch.setenv(VARIABLE, "0.05")
    assert kind().save_checkpoints_secs == 600
    assert kind(save_checkpoints_secs=60).save_checkpoints_secs == 60
    # Each step takes 100 s, so a save may take 5 s. One that waits is the same in each
    # run.
    monkeypatch.setenv("ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT", "0")

    class TakesLong(train.SessionRunHook):
        def before_run(self, run_context):
            now[0] += 100

    def model_fn(features, labels, mode):
        with tf.control_dependencies([features]):
            train_op = train.get_global_step().assign_add(1).op
        return tf.estimator.EstimatorSpec(mode, loss=features, train_op=train_op)

    config = kind(model_dir=str(tmp_path))
    tf.estimator.Estimator(model_fn, config=config).train(
        lambda: tf.data.Dataset.from_tensors(0.0).repeat(4), [TakesLong()]
    )
    assert saved_steps(tmp_path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["save_checkpoints_steps", "save_checkpoints_secs"])
def test_an_overhead_beside_an_interval_is_refused(name):
    for make in (er.RunConfig, er.RunConfig().replace):
        with pytest.raises(ConfigError) as raised:
            make(checkpoint_overhead=0.1, **{name: 60})
        assert str(raised.value) == (
            f"RunConfig: checkpoint_overhead is 0.1, but {name} is given too; leave one "
            "of them out"
        )


def saved_steps(folder):
    state = train.get_checkpoint_state(str(folder))
    return [int(p.rpartition("-")[2]) for p in state.all_model_checkpoint_paths]


def scalars(folder):
    """Return the scalars about checkpoints, by tag and step."""
    found = {}
    for path in folder.glob("events.*"):
        for event in train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag.startswith("checkpoint/"):
                    found[value.tag.removeprefix("checkpoint/"), event.step] = round(
                        value.simple_value, 3
                    )
    return found


@pytest.mark.parametrize("is_async", [True, False])
def test_the_interval_follows_the_cost_which_is_told_to_tensorboard_and_the_log(
    tmp_path, now, around_writes, caplog, monkeypatch, is_async
):
    caplog.set_level("INFO", logger="tensorflow")
    clock = [0.0]

    def take_long(_):
        clock[0] += 2.0

    with tf.Graph().as_default():
        tf1.get_variable("weight", initializer=[0.0] * 100)
        step = train.get_or_create_global_step().assign_add(1).op
        given = options.TrainingOptions(
            checkpoint_overhead=0.1, async_checkpoint=is_async
        )
        with (
            options.use(given),
            er.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session,
        ):
            [hook] = [h for h in session._hooks if isinstance(h, CheckpointHook)]
            hook.finish_background_work()
            monkeypatch.setattr(
                "estimator_runtime.checkpoint.hook.time",
                types.SimpleNamespace(monotonic=lambda: clock[0]),
            )
            hook._saved_at = 0.0
            around_writes(after=take_long)
            for _ in range(6):
                # 10 s at first; when it is known that a checkpoint costs 2 s, 20 s.
                now[0] += 11
                clock[0] += 11
                session.run(step)
                hook.finish_background_work()
    assert saved_steps(tmp_path) == [0, 1, 2, 4, 6]
    found = scalars(tmp_path)
    waited, background = (0.0, 2.0) if is_async else (2.0, 0.0)
    assert {key: value for key, value in found.items() if key[1] == 4} == {
        ("blocked_secs", 4): waited,
        ("write_secs", 4): background,
        ("bytes", 4): 408.0,
        ("interval_secs", 4): 24.0,
    }
    assert ("interval_secs", 0) not in found
    lines = [line for line in caplog.messages if line.startswith("Checkpoint of step")]
    wrote = "the background wrote for 2.0000 s, " if is_async else ""
    assert lines[3] == (
        f"Checkpoint of step 4, 408 bytes: training waited {waited:.4f} s, {wrote}"
        "24.0 s after the one before"
    )
