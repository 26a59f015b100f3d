"""RunConfig in a cluster, held against the frozen class itself."""

import inspect
import itertools
import re

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


def cluster(**replicas):
    """Return every task of these jobs an address."""
    return {
        job: [f"{job}{index}.example:2222" for index in range(count)]
        for job, count in replicas.items()
    }


CLUSTERS = [
    {},
    *(
        cluster(**{chief: 1}, **{job: n for job, n in others.items() if n})
        for chief in ("chief", "master")
        for others in (
            {"ps": ps, "worker": workers}
            for ps, workers in itertools.product(range(3), range(4))
        )
    ),
    cluster(chief=1, evaluator=1),
    cluster(chief=1, ps=1, worker=2, evaluator=2),
    cluster(master=1, worker=1, evaluator=1),
    cluster(zebra=2, worker=2, ps=1, chief=1, aardvark=3),
    cluster(master=1, tester=2, ps=2),
    # Addresses by index, as tf.train.ClusterSpec takes them too.
    {"chief": ["h0:1"], "worker": {"0": "h1:1", "1": "h2:1"}},
    # Refused: no chief, two chiefs, two kinds of chief.
    cluster(worker=1),
    cluster(worker=3),
    cluster(ps=2, worker=2),
    cluster(chief=2, worker=1),
    cluster(master=2, ps=1),
    cluster(chief=1, master=1, worker=1),
]
PLATFORMS = {
    "nothing": {},
    "service": {"service": {"name": "gke", "zone": 3}},
    "no service": {"service": None},
    "session_master": {"session_master": "grpc://elsewhere:1"},
    "eval_session_master": {"eval_session_master": "grpc://there:2"},
    "model_dir": {"model_dir": "/checkpoints"},
    "environment": {"environment": "cloud"},
    "everything": {
        "service": {},
        "session_master": "a",
        "eval_session_master": "",
        "model_dir": "gs://bucket/model",
        "environment": "google",
        "rpc_layer": "grpc",
        "of_the_platform": [1, {"two": None}],
    },
}


def tasks(jobs):
    """Every task of a cluster, the evaluator beside it, and some that are not there."""
    yield from (
        {"type": job, "index": index}
        for job, addresses in jobs.items()
        for index in range(len(addresses) + 1)  # one too many
    )
    yield from (
        {"type": "evaluator", "index": 0},
        {"type": "evaluator", "index": 7},
        {"type": "worker", "index": "0"},
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "worker", "index": -1},
        {"type": "nobody", "index": 0},
        {"type": "", "index": 0},
        {"type": "chief"},
        {"index": 0},
        {},
    )


def outcome(config_class):
    """Return all properties of a config, or the built-in type of its error."""
    try:
        config = config_class()
    except (ValueError, TypeError) as error:
        return TypeError if isinstance(error, TypeError) else ValueError
    return {name: getattr(config, name) for name in PROPERTIES}


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
@pytest.mark.parametrize("jobs", CLUSTERS, ids=lambda c: "+".join(
    f"{job}{len(addresses)}" for job, addresses in c.items()
) or "local")  # fmt: skip
def test_every_task_has_the_properties_that_the_frozen_class_gives_it(
    jobs, platform, set_tf_config
):
    ours, frozen = {}, {}
    for task in tasks(jobs):
        set_tf_config({"cluster": jobs, "task": task, **platform})
        ours[str(task)] = outcome(er.RunConfig)
        frozen[str(task)] = outcome(StockRunConfig)
    assert ours == frozen


def test_the_matrix_has_configs_and_errors_in_good_number(set_tf_config):
    """Guards the test above, which two classes that refuse everything would pass."""
    outcomes = []
    for jobs in CLUSTERS:
        for task in tasks(jobs):
            set_tf_config({"cluster": jobs, "task": task})
            outcomes.append(outcome(er.RunConfig))
    configs = [found for found in outcomes if isinstance(found, dict)]
    assert len(configs) > 150
    assert len(outcomes) - len(configs) > 150
    assert len({(c["task_type"], c["task_id"], c["master"]) for c in configs}) > 20


@pytest.mark.parametrize(
    "jobs", [cluster(chief=1), cluster(chief=1, ps=2), cluster(master=1, worker=2)]
)
@pytest.mark.parametrize("empty", [[], {}])
def test_a_job_without_tasks_changes_no_property_of_any_task(
    jobs, empty, set_tf_config
):
    with_empty, without = {}, {}
    for task in tasks(jobs):
        set_tf_config({"cluster": jobs, "task": task})
        without[str(task)] = outcome(er.RunConfig)
        jobs_and_empty = {**dict.fromkeys(("a", "ps", "worker"), empty), **jobs}
        set_tf_config({"cluster": jobs_and_empty, "task": task})
        with_empty[str(task)] = outcome(er.RunConfig)
    assert with_empty == without
    assert sum(isinstance(found, dict) for found in without.values()) >= 3


def test_a_worker_in_plain_words(set_tf_config):
    set_tf_config(
        {
            "cluster": {
                "chief": ["host0:2222"],
                "ps": ["host1:2222", "host2:2222"],
                "worker": ["host3:2222", "host4:2222", "host5:2222"],
            },
            "task": {"type": "worker", "index": 1},
        }
    )
    config = er.RunConfig()
    found = {
        name: getattr(config, name)
        for name in (
            "task_type task_id master evaluation_master is_chief num_ps_replicas "
            "num_worker_replicas global_id_in_cluster service model_dir"
        ).split()
    }
    assert found == {
        "task_type": "worker",
        "task_id": 1,
        "master": "grpc://host4:2222",
        "evaluation_master": "",
        "is_chief": False,
        "num_ps_replicas": 2,
        "num_worker_replicas": 4,
        "global_id_in_cluster": 2,
        "service": None,
        "model_dir": None,
    }


_CHIEF = cluster(chief=1, worker=2)
_CHIEF_0 = {"type": "chief", "index": 0}


@pytest.mark.parametrize(
    ("tf_config", "builtin", "core"),
    [
        ("", ValueError, ""),
        ("{", ValueError, "Expecting property name"),
        ({"task": {"type": "ps"}}, ValueError, "task type must be WORKER"),
        ({"task": {"index": 1}}, ValueError, "task index must be 0"),
        ({"cluster": cluster(ps=1, worker=1), "task": {"type": "worker", "index": 0}},
         ValueError, 'it must have one "chief" node'),
        ({"cluster": cluster(chief=2), "task": _CHIEF_0},
         ValueError, 'must have only one "chief" node'),
        ({"cluster": cluster(master=2), "task": {"type": "master", "index": 0}},
         ValueError, 'must have only one "master" node'),
        ({"cluster": cluster(chief=1, master=1), "task": _CHIEF_0},
         ValueError, "`master` node exists in `cluster`, job `chief` is not supported"),
        ({"cluster": cluster(master=1), "task": {"type": "evaluator", "index": 0}},
         ValueError, "task_type `evaluator` is not supported"),
        ({"cluster": _CHIEF}, ValueError, "task type must be set"),
        ({"cluster": _CHIEF, "task": {"type": "chief"}},
         ValueError, "task index must be set"),
        ({"cluster": _CHIEF, "task": {"type": "chief", "index": None}},
         ValueError, "task index must be set"),
        ({"cluster": _CHIEF, "task": {"type": "worker", "index": -1}},
         ValueError, "Task index must be non-negative number"),
        ({"cluster": _CHIEF, "task": {"type": "worker", "index": 2}},
         ValueError, "is not a valid task_id"),
        ({"cluster": _CHIEF, "task": {"type": "ps", "index": 0}},
         ValueError, "is not a valid task_type in"),
        ({"cluster": _CHIEF, "task": {"type": "worker", "index": "one"}},
         ValueError, "one"),
        ({"cluster": _CHIEF, "task": {"type": "worker", "index": [1]}}, TypeError, ""),
        ({"cluster": [], "task": {"index": {}}}, TypeError, ""),
        ({"cluster": None}, TypeError, ""),
        ({"cluster": {"chief": "host0:2222"}, "task": _CHIEF_0}, TypeError, ""),
        ({"cluster": {"chief": [5]}, "task": _CHIEF_0}, TypeError, ""),
        ({"service": 5},
         TypeError, 'If "service" is set in TF_CONFIG, it must be a dict'),
        ({"model_dir": ""}, ValueError, "model_dir in TF_CONFIG should be non-empty"),
    ],
)  # fmt: skip
def test_what_the_frozen_class_refuses_is_refused_in_its_words_on_one_line(
    tf_config, builtin, core, set_tf_config
):
    set_tf_config(tf_config)
    with pytest.raises(builtin) as frozen:
        StockRunConfig()
    with pytest.raises(ConfigError) as ours:
        er.RunConfig()
    assert core in str(frozen.value)
    assert core in str(ours.value)
    assert str(ours.value).startswith("TF_CONFIG")
    assert "\n" not in str(ours.value)
    assert (
        type(ours.value)
        is {ValueError: ConfigError, TypeError: ConfigTypeError}[builtin]
    )


@pytest.mark.parametrize(
    ("tf_config", "field"),
    [
        ({"cluster": {"chief": ["h:1"], "ps": ["h:2", "h:1"]}}, "cluster['ps'][1]"),
        ({"cluster": {"chief": ["h:1"], "ps": ["H:1"]}}, "cluster['ps'][0]"),
        ({"cluster": {"chief": ["h:99999"], "ps": ["h:2"]}}, "cluster['chief'][0]"),
        ({"cluster": {"chief": ["h:-1"], "ps": ["h:2"]}}, "cluster['chief'][0]"),
        ({"cluster": {"chief": ["h:http"], "ps": ["h:2"]}}, "cluster['chief'][0]"),
        ({"cluster": {"chief": ["h"], "ps": ["h:2"]}}, "cluster['chief'][0]"),
        ({"cluster": {"chief": [":1"], "ps": ["h:2"]}}, "cluster['chief'][0]"),
        ({"cluster": {"chief": ["h :1"], "ps": ["h:2"]}}, "cluster['chief'][0]"),
        ({"cluster": {"chief": ["grpc://h:1"], "ps": ["h:2"]}}, "cluster['chief'][0]"),
        ({"cluster": {"chief": ["h:1"], "": ["h:2"]}}, "cluster"),
        ({"cluster": {"chief": ["h:1"], "ps": {"1": "h:2"}}}, "cluster['ps']"),
        ({"cluster": _CHIEF, "task": {"type": "worker", "index": 1.7}}, "task.index"),
        ({"cluster": _CHIEF, "task": {"type": "worker", "index": True}}, "task.index"),
        ({"task": {"index": False}}, "task.index"),
        ({"session_master": 5}, "session_master"),
        ({"eval_session_master": ["grpc://h:1"]}, "eval_session_master"),
        ({"model_dir": {"path": "/a"}}, "model_dir"),
        ({"environment": 1}, "environment"),
    ],
)
def test_what_the_frozen_class_lets_pass_and_would_hang_or_crash_later_is_refused(
    tf_config, field, set_tf_config
):
    if "cluster" in tf_config:
        tf_config = {"task": _CHIEF_0, **tf_config}
    set_tf_config(tf_config)
    assert StockRunConfig().task_id in (0, 1)
    with pytest.raises(ConfigError) as refused:
        er.RunConfig()
    assert str(refused.value).startswith(f"TF_CONFIG: {field} ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("address", ["fake_chief", ":1", "grpc://h:1"])
def test_the_address_of_the_only_task_may_be_any_as_nobody_connects_to_it(
    address, set_tf_config
):
    set_tf_config({"cluster": {"chief": [address]}, "task": _CHIEF_0})
    assert er.RunConfig().is_chief
    assert er.RunConfig().master == ""


@pytest.mark.parametrize("tf_config", ["[]", '"chief"', "5", {"task": None}])
def test_what_the_frozen_class_meets_with_an_attribute_error_is_refused(
    tf_config, set_tf_config
):
    set_tf_config(tf_config)
    with pytest.raises(AttributeError):
        StockRunConfig()
    with pytest.raises(ConfigError, match=r"TF_CONFIG: .* not an object"):
        er.RunConfig()


_STRATEGY = tf.distribute.OneDeviceStrategy("/cpu:0")


@pytest.mark.parametrize(
    "arguments",
    [
        {"train_distribute": _STRATEGY},
        {"experimental_distribute": DistributeConfig(_STRATEGY)},
    ],
    ids=" ".join,
)
def test_workers_without_a_chief_are_right_with_a_strategy(arguments, set_tf_config):
    set_tf_config(
        {"cluster": cluster(worker=2), "task": {"type": "worker", "index": 1}}
    )
    config = er.RunConfig(**arguments)
    assert config.cluster_spec == tf.train.ClusterSpec(cluster(worker=2))


@pytest.mark.parametrize(
    "arguments",
    [
        {"eval_distribute": _STRATEGY},
        {"experimental_distribute": DistributeConfig()},
        {"experimental_distribute": DistributeConfig(eval_distribute=_STRATEGY)},
    ],
    ids=["for evaluation", "none", "none for training"],
)
@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        ({"chief": ["h:99999"], "worker": ["h:1"]}, "cluster['chief'][0]"),
        (cluster(worker=2), "cluster"),
    ],
)
def test_without_a_strategy_for_training_addresses_and_chief_are_checked(
    arguments, jobs, field, set_tf_config
):
    set_tf_config({"cluster": jobs, "task": {"type": "worker", "index": 0}})
    with pytest.raises(ConfigError, match=re.escape(f"TF_CONFIG: {field} ")):
        er.RunConfig(**arguments)
