"""The older RunConfig, held against the recorded answers of TensorFlow 1.15.5."""

import copy
import inspect
import json
import pathlib
import pickle
import warnings

import pytest
import tensorflow as tf
from google.protobuf import text_format

import estimator_runtime
from estimator_runtime.contrib import learn
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
    if "raises" in answer:
        _expect_error(answer, lambda: RunConfig(**arguments))
        return
    config = RunConfig(**arguments)
    assert [getattr(config, n) for n in [*_CLUSTER_PROPERTIES, "model_dir"]] == answer[
        "is"
    ]
    assert config.cluster_spec == tf.train.ClusterSpec(document.get("cluster", {}))


@pytest.mark.parametrize(
    ("document", "arguments", "answer"),
    [record for record in _RECORDED["clusters"] if "model_dir" not in record[1]],
    ids=str,
)
def test_a_cluster_config_has_the_properties_of_1_15(
    document, arguments, answer, set_tf_config
):
    set_tf_config(document)
    if "raises" in answer:
        _expect_error(answer, lambda: ClusterConfig(**arguments))
        return
    config = ClusterConfig(**arguments)
    assert [getattr(config, name) for name in _CLUSTER_PROPERTIES] == answer["is"][:-1]
    assert ClusterConfig.get_task_id() == RunConfig.get_task_id() == config.task_id


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


def test_replacing_copying_and_a_cluster_config_do_not_warn():
    config = RunConfig()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.replace(model_dir="/other")
        copy.deepcopy(config)
        ClusterConfig()


def test_it_is_a_run_config_and_a_cluster_config():
    config = RunConfig()
    assert isinstance(config, (estimator_runtime.RunConfig, tf.estimator.RunConfig))
    assert isinstance(config, ClusterConfig)


def test_what_1_15_could_not_say_has_a_value(set_tf_config):
    set_tf_config({**_PS_AND_WORKERS, "service": {"name": "x"}})
    config = RunConfig()
    assert config.service == {"name": "x"}
    assert config.global_id_in_cluster == 1  # after worker 0, before ps 0
    assert config.checkpoint_save_graph_def is True


def test_replace_takes_the_strategies_and_functions_of_the_core():
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    evaluation = tf.distribute.OneDeviceStrategy("/cpu:0")

    def place(op):
        return "/cpu:0"

    config = RunConfig().replace(
        train_distribute=strategy,
        eval_distribute=evaluation,
        device_fn=place,
        experimental_max_worker_delay_secs=3,
    )
    assert config.train_distribute is strategy
    assert config.eval_distribute is evaluation
    assert config.device_fn is place
    assert config.experimental_max_worker_delay_secs == 3


def test_model_dir_may_be_a_path(tmp_path):
    assert RunConfig(model_dir=tmp_path).model_dir == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"num_cores": "4"},
            "RunConfig: num_cores is '4' (str); give a number of threads, or 0",
        ),
        (
            {"num_cores": 1.5},
            "RunConfig: num_cores is 1.5 (float); give a number of threads, or 0",
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
        (
            {"evaluation_master": 3},
            "RunConfig: evaluation_master is 3 (int); " + _TARGET,
        ),
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
        ({"num_cores": 2**31}, "num_cores is 2147483648 (int), which is out of range"),
        (
            {"gpu_memory_fraction": -0.5},
            "gpu_memory_fraction is -0.5 (float), which is out of range",
        ),
        ({"save_summary_steps": -1}, "save_summary_steps should be >= 0"),
        ({"log_step_count_steps": 0}, "log_step_count_steps should be > 0"),
        ({"tf_random_seed": 1.5}, "tf_random_seed must be integer."),
        ({"session_config": 5}, "session_config must be instance of ConfigProto"),
        ({"protocol": "http"}, "protocol should be grpc or grpc+verbs"),
        ({"model_dir": ""}, "model_dir should be non-empty"),
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


def test_the_names_of_1_15_are_there():
    assert (
        vars(learn.Environment).items()
        >= {"CLOUD": "cloud", "GOOGLE": "google", "LOCAL": "local"}.items()
    )
    assert (
        vars(learn.TaskType).items()
        >= {"MASTER": "master", "PS": "ps", "WORKER": "worker"}.items()
    )
