"""RunConfig's constructor and replace(), held against the frozen class itself."""

import copy
import inspect
import pathlib
import pickle
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.distribute_config import DistributeConfig

import estimator_runtime as er
from estimator_runtime.errors import ConfigError, ConfigTypeError
from estimator_runtime.patching.frozen import StockRunConfig

PROPERTIES = [
    name
    for name, _ in inspect.getmembers(StockRunConfig, lambda v: isinstance(v, property))
]
SESSION_CONFIG = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)


def first_device(op):
    return "/cpu:0"


# Of every argument a value that is not its default.
VALUES = {
    "model_dir": "/models/a",
    "tf_random_seed": 7,
    "save_summary_steps": 11,
    "save_checkpoints_steps": 12,
    "save_checkpoints_secs": 13,
    "session_config": SESSION_CONFIG,
    "keep_checkpoint_max": 14,
    "keep_checkpoint_every_n_hours": 0.5,
    "log_step_count_steps": 15,
    "train_distribute": tf.distribute.OneDeviceStrategy("/cpu:0"),
    "device_fn": first_device,
    "protocol": "grpc+verbs",
    "eval_distribute": tf.distribute.OneDeviceStrategy("/cpu:0"),
    "experimental_distribute": DistributeConfig(),
    "experimental_max_worker_delay_secs": 16,
    "session_creation_timeout_secs": 17,
    "checkpoint_save_graph_def": False,
}


def properties(config):
    return {name: getattr(config, name) for name in PROPERTIES}


def parameters(function):
    """Name, kind and default of each parameter; the marks of "not given" are equal."""
    return [
        (p.name, p.kind, "not given" if type(p.default) is object else p.default)
        for p in inspect.signature(function).parameters.values()
    ]


def test_the_constructor_has_the_frozen_classs_signature():
    ours = parameters(er.RunConfig)
    # What is ours alone can only be given by name.
    shared = [each for each in ours if each[1] is not inspect.Parameter.KEYWORD_ONLY]
    assert shared == parameters(StockRunConfig)


def test_a_misspelt_argument_is_refused_with_the_one_that_may_be_meant():
    meant = r"no argument save_checkpoint_steps; did you mean save_checkpoints_steps\?"
    with pytest.raises(TypeError, match=meant):
        er.RunConfig(save_checkpoint_steps=5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'like_nothing'"):
        er.RunConfig(like_nothing=5)


def test_replace_has_the_frozen_classs_signature():
    assert parameters(er.RunConfig.replace) == parameters(StockRunConfig.replace)


def test_all_defaults_are_the_frozen_classs():
    assert properties(er.RunConfig()) == properties(StockRunConfig())


def test_values_stand_for_every_argument():
    assert list(VALUES) == list(inspect.signature(StockRunConfig).parameters)


@pytest.mark.parametrize("name", VALUES)
def test_an_argument_changes_the_properties_that_it_changes_in_the_frozen_class(name):
    argument = {name: VALUES[name]}
    changed = properties(er.RunConfig(**argument))
    assert changed == properties(StockRunConfig(**argument))
    assert changed.get(name, VALUES[name]) is VALUES[name]


@pytest.mark.parametrize("name", VALUES)
def test_replace_changes_the_properties_that_it_changes_in_the_frozen_class(name):
    argument = {name: VALUES[name]}
    config = er.RunConfig(model_dir="/before")
    changed = config.replace(**argument)
    frozen = StockRunConfig(model_dir="/before").replace(**argument)
    assert type(changed) is er.RunConfig
    assert properties(changed) == properties(frozen)
    assert properties(config) == properties(StockRunConfig(model_dir="/before"))


@pytest.mark.parametrize(
    "name", [*sorted(set(PROPERTIES) - set(VALUES)), "experimental_device", "_master"]
)
def test_replace_refuses_names_that_are_no_arguments(name):
    with pytest.raises(ValueError, match=f"Replacing {name} is not supported"):
        StockRunConfig().replace(**{name: 1})
    with pytest.raises(
        ConfigError, match=f"Replacing {name} is not supported.*model_d"
    ):
        er.RunConfig().replace(**{name: 1})


@pytest.mark.parametrize(
    ("given", "steps_and_secs"),
    [
        ({}, (None, 600)),
        ({"save_checkpoints_steps": 5}, (5, None)),
        ({"save_checkpoints_secs": 5}, (None, 5)),
        ({"save_checkpoints_steps": 0}, (0, None)),
        ({"save_checkpoints_steps": None}, (None, None)),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": 5}, (None, 5)),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": None}, (None, None)),
    ],
)
def test_one_checkpoint_interval_holds(given, steps_and_secs):
    for config in er.RunConfig(**given), StockRunConfig(**given):
        found = (config.save_checkpoints_steps, config.save_checkpoints_secs)
        assert found == steps_and_secs


@pytest.mark.parametrize(
    ("given", "steps_and_secs"),
    [
        ({}, (3, None)),
        ({"save_checkpoints_steps": 5}, (5, None)),
        ({"save_checkpoints_secs": 5}, (None, 5)),
        ({"save_checkpoints_secs": None}, (3, None)),
        ({"save_checkpoints_steps": None, "save_checkpoints_secs": 5}, (None, 5)),
    ],
)
def test_a_replaced_checkpoint_interval_takes_the_place_of_the_other(
    given, steps_and_secs
):
    for config_class in er.RunConfig, StockRunConfig:
        config = config_class(save_checkpoints_steps=3).replace(**given)
        found = (config.save_checkpoints_steps, config.save_checkpoints_secs)
        assert found == steps_and_secs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_dir", ""),
        ("tf_random_seed", 1.5),
        ("save_summary_steps", -1),
        ("save_checkpoints_steps", -1),
        ("save_checkpoints_secs", -0.5),
        ("session_config", {}),
        ("keep_checkpoint_max", -1),
        ("keep_checkpoint_every_n_hours", 0),
        ("log_step_count_steps", 0),
        ("device_fn", "/cpu:0"),
        ("device_fn", lambda operation: "/cpu:0"),
        ("protocol", "http"),
        ("experimental_max_worker_delay_secs", 0.5),
        ("session_creation_timeout_secs", 0),
        ("session_creation_timeout_secs", "1h"),
    ],
)
@pytest.mark.parametrize("way", ["constructor", "replace"])
def test_what_the_frozen_class_refuses_is_refused_on_one_line(name, value, way):
    def make(config_class):
        if way == "constructor":
            return config_class(**{name: value})
        return config_class().replace(**{name: value})

    with pytest.raises((ValueError, TypeError)) as frozen:
        make(StockRunConfig)
    with pytest.raises(ConfigError) as ours:
        make(er.RunConfig)
    text = str(ours.value)
    assert text.startswith(f"RunConfig: {name} ")
    assert "\n" not in text
    if isinstance(frozen.value, TypeError):
        assert type(ours.value) is ConfigTypeError
    else:
        assert type(ours.value) is ConfigError
        assert str(frozen.value).rstrip(".") in text
    assert name == "device_fn" or repr(value) in text


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (
            {"model_dir": 5},
            ConfigTypeError,
            "model_dir is 5 (int); give a path as str or os.PathLike, or None",
        ),
        (
            {"save_checkpoints_steps": 5, "save_checkpoints_secs": 0},
            ConfigError,
            "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.",
        ),
    ],
)
def test_a_bad_argument_is_refused_with_its_value_and_what_would_do(
    arguments, error, told
):
    with pytest.raises(ConfigError) as refused:
        er.RunConfig(**arguments)
    assert (type(refused.value), str(refused.value)) == (error, f"RunConfig: {told}")


def test_a_number_in_an_array_counts_as_that_number():
    config = er.RunConfig(
        save_summary_steps=np.array(5), save_checkpoints_secs=np.array([1.5])
    )
    assert (config.save_summary_steps, config.save_checkpoints_secs) == (5, 1.5)


def test_a_number_of_numpys_counts_as_that_number():
    config = er.RunConfig(steps_per_run=np.int64(8), keep_best=2, best_metric="loss")
    config = config.replace(keep_best=np.int32(3))
    assert (config.steps_per_run, config.keep_best) == (8, 3)
    assert type(config.steps_per_run) is type(config.keep_best) is int


@pytest.mark.parametrize("way", [er.RunConfig, er.RunConfig().replace])
def test_a_path_object_becomes_a_string(way):
    assert way(model_dir=pathlib.Path("/models") / "a").model_dir == "/models/a"


@pytest.mark.parametrize(
    ("argument", "in_tf_config", "model_dir"),
    [
        (None, "/models/a", "/models/a"),
        ("/models/a", None, "/models/a"),
        ("/models/a", "/models/a", "/models/a"),
        (pathlib.Path("/models/a"), "/models/a", "/models/a"),
    ],
)
def test_model_dir_comes_from_the_argument_or_from_tf_config(
    argument, in_tf_config, model_dir, set_tf_config
):
    set_tf_config({"model_dir": in_tf_config})
    for config_class in er.RunConfig, StockRunConfig:
        assert config_class(model_dir=argument).model_dir == model_dir


@pytest.mark.parametrize("argument", ["/models/b", pathlib.Path("/models/b")])
def test_two_different_model_dirs_are_refused(argument, set_tf_config):
    set_tf_config({"model_dir": "/models/a"})
    rule = "must have the same value as the model_dir in TF_CONFIG"
    with pytest.raises(ValueError, match=rule):
        StockRunConfig(model_dir=argument)
    with pytest.raises(ConfigError) as refused:
        er.RunConfig(model_dir=argument)
    assert str(refused.value) == (
        "RunConfig: model_dir is '/models/b', but TF_CONFIG has '/models/a'. "
        f"`model_dir` provided in RunConfig construct, if set, {rule}. "
        "Leave one of them out"
    )


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute"])
def test_a_strategy_is_given_here_or_there(name):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    inside = DistributeConfig(**{name: strategy})
    config = er.RunConfig(experimental_distribute=inside)
    assert getattr(config, name) is strategy
    assert properties(config) == properties(
        StockRunConfig(experimental_distribute=inside)
    )


@pytest.mark.parametrize("name", ["train_distribute", "eval_distribute"])
def test_a_strategy_given_here_and_there_is_refused(name):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    twice = {
        name: strategy,
        "experimental_distribute": DistributeConfig(**{name: strategy}),
    }
    with pytest.raises(ValueError, match=f"`experimental_distribute.{name}`"):
        StockRunConfig(**twice)
    with pytest.raises(
        ConfigError, match=f"RunConfig: .*`experimental_distribute.{name}`"
    ):
        er.RunConfig(**twice)


def test_a_config_survives_pickle_and_deepcopy(set_tf_config):
    cluster = {"chief": ["host0:2222"], "ps": ["host1:2222"], "worker": ["host2:2222"]}
    set_tf_config({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    config = er.RunConfig("/models/a", 3, session_config=SESSION_CONFIG)
    for copied in pickle.loads(pickle.dumps(config)), copy.deepcopy(config):
        assert type(copied) is er.RunConfig
        assert properties(copied) == properties(config)


def test_a_model_dir_that_cannot_be_made_is_refused_before_the_model(tmp_path):
    (tmp_path / "file").touch()

    def model_fn(features, labels):
        pytest.fail("the model is built")

    folder = str(tmp_path / "file" / "model")
    estimator = tf.estimator.Estimator(model_fn, model_dir=folder)
    told = (
        f"model_dir {folder!r} cannot be created: Not a directory; give a folder that "
        "this process may write"
    )
    with pytest.raises(ConfigError, match=re.escape(told)):
        estimator.train(lambda: tf.data.Dataset.from_tensors(({"x": [1.0]}, [1.0])))
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
