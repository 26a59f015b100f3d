"""Whose instances count as RunConfigs, and what an Estimator makes of them."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.patching.frozen import StockRunConfig


class OurSubclass(er.RunConfig):
    def __init__(self, learning_rate, **kwargs):
        super().__init__(**kwargs)
        self.learning_rate = learning_rate


def tpu_run_config(**kwargs):
    # Imported here: on TensorFlow >= 2.16 only after estimator_runtime.
    from tensorflow_estimator.python.estimator.tpu import tpu_config

    return tpu_config.RunConfig(**kwargs)


def our_subclass(**kwargs):
    return OurSubclass(0.1, **kwargs)


ACCEPTED = [er.RunConfig, StockRunConfig, tpu_run_config, our_subclass]


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", initializer=[[0.0]])
    loss = tf.reduce_mean(tf.square(features @ weight - labels))
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensors(([[1.0]], [[2.0]])).repeat()


@pytest.mark.parametrize("make", ACCEPTED)
def test_a_run_config_of_any_kind_is_an_instance_of_ours(make):
    assert isinstance(make(), er.RunConfig)


def test_a_subclass_of_ours_has_only_its_own_instances():
    assert isinstance(our_subclass(), OurSubclass)
    assert not isinstance(er.RunConfig(), OurSubclass)
    assert not isinstance(StockRunConfig(), OurSubclass)


def test_what_is_no_run_config_is_no_instance():
    assert not isinstance(tf.compat.v1.ConfigProto(), er.RunConfig)
    with pytest.raises(ValueError, match="config must be an instance of `RunConfig`"):
        tf.estimator.Estimator(model_fn, config=tf.compat.v1.ConfigProto())


@pytest.mark.parametrize("make", ACCEPTED)
def test_an_estimator_takes_a_config_of_any_kind_and_fills_it_in(make, tmp_path):
    given = make(tf_random_seed=4)
    config = tf.estimator.Estimator(model_fn, tmp_path, config=given).config
    assert type(config) is type(given)
    assert config.model_dir == str(tmp_path)
    assert config.tf_random_seed == 4
    assert config.session_config.allow_soft_placement
    assert (given.model_dir, given.session_config) == (None, None)


@pytest.mark.parametrize("make", ACCEPTED)
def test_an_estimator_trains_with_a_config_of_any_kind(make, tmp_path):
    config = make(model_dir=str(tmp_path), save_checkpoints_steps=2)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(input_fn, steps=3)
    assert estimator.get_variable_value("global_step") == 3
    assert estimator.get_variable_value("weight")[0, 0] > 0.9
    saved = tf.train.get_checkpoint_state(tmp_path).all_model_checkpoint_paths
    assert saved == [f"{tmp_path}/model.ckpt-{step}" for step in (0, 2, 3)]


class SessionConfig(tf.estimator.SessionRunHook):
    """Keeps the ConfigProto of the session that it runs in."""

    def after_create_session(self, session, coord):
        self.found = session._config


def test_a_session_config_reaches_the_session_of_an_estimator(tmp_path):
    mine, seen = (
        tf.compat.v1.ConfigProto(intra_op_parallelism_threads=3),
        SessionConfig(),
    )
    config = er.RunConfig(tmp_path, session_config=mine)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(input_fn, hooks=[seen], steps=1)
    assert seen.found == mine


def test_replace_keeps_the_class_and_the_attributes_of_a_subclass():
    config = OurSubclass(0.5, model_dir="/a").replace(model_dir="/b")
    assert type(config) is OurSubclass
    assert (config.learning_rate, config.model_dir) == (0.5, "/b")


def test_a_subclass_may_override_what_the_frozen_class_lets_it(set_tf_config):
    class WithoutFilters(tf.estimator.RunConfig):
        def _get_default_session_config_distributed(self):
            return None

    cluster = {"chief": ["host0:2222"], "ps": ["host1:2222"]}
    set_tf_config({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    mine = tf.compat.v1.ConfigProto(log_device_placement=True)
    assert WithoutFilters(session_config=mine).session_config == mine
    assert list(er.RunConfig(session_config=mine).session_config.device_filters)
