"""The older RunConfig, held against the recorded answers of TensorFlow 1.15.5."""

import copy
import functools
import inspect
import json
import pathlib
import pickle

import pytest
import tensorflow as tf
from google.protobuf import text_format

import estimator_runtime
from estimator_runtime.contrib.learn import ClusterConfig, RunConfig
from estimator_runtime.errors import ConfigError, ConfigTypeError

pytestmark = pytest.mark.filterwarnings(
    "ignore:estimator_runtime.contrib.learn.RunConfig is:DeprecationWarning"
)

_RECORDED = json.loads(
    pathlib.Path(__file__, "../tensorflow_1_15.json").resolve().read_text()
)
_TARGET = 'give a session target such as "grpc://host:2222", or None'
_CLUSTER_PROPERTIES = (
    "environment task_type task_id is_chief master evaluation_master "
    "num_ps_replicas num_worker_replicas"
).split()
_PS_AND_WORKERS = {
    "cluster": {"ps": ["p0:1"], "worker": ["w0:1", "w1:1"]},
    "task": {"type": "worker", "index": 1},
}


def _decode(arguments):
    """Make protocol buffers of their recorded texts."""
    protos = {"session_config", "tf_config"} & arguments.keys()
    return {**arguments, **{name: _proto(arguments[name]) for name in protos}}


def _proto(text):
    return text and text_format.Parse(text, tf.compat.v1.ConfigProto())


def _changes(config, base):
    names = [name for name, _ in _RECORDED["defaults"]]
    pairs = [(name, getattr(config, name), getattr(base, name)) for name in names]
    return {name: new for name, new, old in pairs if new != old}


def _expect_error(answer, call):
    kind, message = answer["raises"]
    with pytest.raises(ConfigError) as caught:
        call()
    assert isinstance(
        caught.value, {"ValueError": ValueError, "TypeError": TypeError}[kind]
    )
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_signatures_are_those_of_1_15():
    def signature(cls):
        parameters = list(inspect.signature(cls).parameters.values())
        return [[p.name for p in parameters], [p.default for p in parameters]]

    assert [signature(RunConfig), signature(ClusterConfig)] == _RECORDED["signatures"]


@pytest.mark.parametrize(
    ("document", "arguments", "answer"), _RECORDED["clusters"], ids=str
)
def test_a_task_has_the_properties_of_1_15(document, arguments, answer, set_tf_config):
    set_tf_config(document)
    # A ClusterConfig has no model_dir.
    classes = [RunConfig, *[ClusterConfig] * ("model_dir" not in arguments)]
    if "raises" in answer:
        for cls in classes:
            _expect_error(answer, functools.partial(cls, **arguments))
        return
    *expected, model_dir = answer["is"]
    configs = [cls(**arguments) for cls in classes]
    for config in configs:
        assert [getattr(config, name) for name in _CLUSTER_PROPERTIES] == expected
        assert config.get_task_id() == config.task_id
    assert configs[0].model_dir == model_dir
    assert configs[0].cluster_spec == tf.train.ClusterSpec(document.get("cluster", {}))


def test_the_defaults_are_those_of_1_15():
    config = RunConfig()
    assert [[n, getattr(config, n)] for n, _ in _RECORDED["defaults"]] == _RECORDED[
        "defaults"
    ]


@pytest.mark.parametrize(("arguments", "answer"), _RECORDED["arguments"], ids=str)
def test_an_argument_changes_what_it_changed_in_1_15(arguments, answer):
    config, default, mine = (
        RunConfig(**_decode(arguments)),
        RunConfig(),
        list(arguments),
    )
    assert {
        "changes": _changes(config, default),
        "tf_config": config.tf_config,
        "session_config": config.session_config,
        "same_uid": config.uid() == default.uid(),
        "same_uid_of_all": config.uid([]) == default.uid([]),
        "same_uid_without": config.uid(mine) == default.uid(mine),
    } == _decode(answer["is"])


@pytest.mark.parametrize(("replaced", "answer"), _RECORDED["replaced"], ids=str)
def test_replace_does_what_it_did_in_1_15(replaced, answer):
    config = RunConfig(num_cores=2, model_dir="/models")
    if "raises" in answer:
        _expect_error(answer, lambda: config.replace(**_decode(replaced)))
        return
    changed = config.replace(**_decode(replaced))
    assert type(changed) is RunConfig
    assert _changes(changed, config) == answer["is"]
    assert changed.tf_config == config.tf_config
    assert changed.session_config == _decode(replaced).get("session_config")


def test_construction_warns_at_the_line_of_the_caller_and_names_the_successor():
    with pytest.warns(
        DeprecationWarning, match="use estimator_runtime.RunConfig"
    ) as caught:
        RunConfig()
    assert [warning.filename for warning in caught] == [__file__]


def test_it_is_a_run_config_and_a_cluster_config():
    config = RunConfig()
    assert isinstance(config, (estimator_runtime.RunConfig, tf.estimator.RunConfig))
    assert isinstance(config, ClusterConfig)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"num_cores": "4"},
            "RunConfig: num_cores is '4' (str); give a number of threads, or 0",
        ),
        (
            {"log_device_placement": "no"},
            "RunConfig: log_device_placement is 'no' (str); give a bool",
        ),
        (
            {"gpu_memory_fraction": "x"},
            "RunConfig: gpu_memory_fraction is 'x' (str); give a fraction, 0 to 1",
        ),
        ({"master": 3}, "RunConfig: master is 3 (int); " + _TARGET),
    ],
    ids=str,
)
def test_an_argument_of_the_wrong_type_is_named_with_what_would_do(arguments, message):
    with pytest.raises(ConfigTypeError) as caught:
        RunConfig(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_cores": -1}, "num_cores is -1 (int), which is out of range"),
        (
            {"gpu_memory_fraction": -0.5},
            "gpu_memory_fraction is -0.5 (float), which is out of range",
        ),
        ({"save_summary_steps": -1}, "save_summary_steps should be >= 0"),
    ],
    ids=str,
)
def test_a_value_no_estimator_would_take_is_refused_at_once(arguments, message):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**arguments)
    assert str(caught.value).startswith("RunConfig: ")
    assert message in str(caught.value)


def test_a_config_can_be_copied_and_pickled(set_tf_config):
    set_tf_config(_PS_AND_WORKERS)
    config = RunConfig(num_cores=2, model_dir="/models")
    copies = [copy.deepcopy(config), pickle.loads(pickle.dumps(config))]
    assert [each.uid([]) for each in copies] == [config.uid([])] * 2
