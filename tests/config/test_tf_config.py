import copy
import dataclasses
import json
import pickle
import random

import pytest

from estimator_runtime.config import tf_config
from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.role import TaskType
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.errors import ConfigError

CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}
WORKER_1 = {"type": "worker", "index": 1}


def read(document, **requirements):
    return TFConfig.from_environ({"TF_CONFIG": json.dumps(document)}, **requirements)


@pytest.mark.parametrize(
    "cluster, count",
    [
        ({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, 0),
        ({"chief": ["a:1"], "ps": ["d:1"]}, 1),
        ({"master": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, 3),
        ({"chief": ["a:1"], "worker": {"0": "b:1"}, "ps": {"0": "d:1"}}, 2),
    ],
)
def test_trainers_are_counted_if_there_are_parameter_servers(cluster, count):
    environ = {"TF_CONFIG": json.dumps({"cluster": cluster})}
    assert tf_config.count_trainers_with_ps(environ) == count


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": "{}"}])
def test_without_tf_config_the_run_is_local(environ):
    assert TFConfig.from_environ(environ) == TFConfig(
        cluster=Cluster(),
        task_type=None,
        task_index=None,
        service=None,
        session_master=None,
        eval_session_master=None,
        model_dir=None,
        environment=None,
        rpc_layer=None,
    )


@pytest.mark.parametrize(
    ("cluster", "task_type", "index"),
    [
        (CLUSTER, "chief", 0),
        (CLUSTER, "ps", 1),
        (CLUSTER, "worker", 2),
        (CLUSTER, "evaluator", 12),  # not part of the cluster: no upper bound
        ({"master": ["h:1"], "ps": ["h:2"]}, TaskType.MASTER, 0),
        ({"chief": ["h:1"], "evaluator": ["h:2"]}, "evaluator", 0),
        ({"chief": ["h:1"], "other_type": ["h:2", "h:3"]}, "other_type", 1),
        ({"chief": ["h:1"]}, "chief", 0),
        ({"chief": ["h:1"], "worker": {"1": "h:3", "0": "h:2"}}, "worker", 1),
    ],
)
def test_a_task_is_read_with_its_cluster(cluster, task_type, index):
    config = read({"cluster": cluster, "task": {"type": task_type, "index": index}})
    assert config == TFConfig(
        cluster=Cluster(cluster), task_type=task_type, task_index=index
    )


def test_a_cluster_of_workers_is_read_where_no_chief_is_required():
    document = {"cluster": {"worker": ["h:1", "h:2"]}, "task": WORKER_1}
    config = read(document, chief_required=False)
    assert config == TFConfig(
        cluster=Cluster({"worker": ["h:1", "h:2"]}), task_type="worker", task_index=1
    )


@pytest.mark.parametrize("empty", [[], {}])
def test_a_job_without_tasks_is_as_good_as_absent(empty):
    hosts = ["h:1"]
    document = {"cluster": {"chief": hosts, "worker": hosts[1:], "ps": empty}}
    task = {"task": {"type": "chief", "index": 0}}
    config = read({**document, **task})
    assert config == read({"cluster": {"chief": hosts}, **task})
    assert json.loads(config.to_json()) == {"cluster": {"chief": hosts}, **task}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({}, TFConfig()),
        ({"type": "worker"}, TFConfig(task_type="worker")),
        ({"index": 0}, TFConfig(task_index=0)),
        (
            {"type": "worker", "index": "0"},
            TFConfig(task_type="worker", task_index=0),
        ),
    ],
)
def test_without_a_cluster_the_task_stays_as_it_is_given(task, expected):
    assert read({"task": task}) == expected
    assert read({"task": task, "cluster": {}}) == expected


def test_a_task_may_be_left_out_where_none_is_required():
    assert read({"cluster": CLUSTER}, task_required=False) == TFConfig(
        cluster=Cluster(CLUSTER)
    )
    assert read(
        {"cluster": CLUSTER, "task": {"type": "ps"}}, task_required=False
    ) == TFConfig(cluster=Cluster(CLUSTER), task_type="ps")


def test_settings_are_read_and_unknown_keys_ignored():
    document = {
        "service": {"key1": [1, 2], "key2": {"a": 3}},
        "session_master": "grpc://host:1",
        "eval_session_master": "",
        "model_dir": "/tmp/model",
        "environment": "google",
        "rpc_layer": "grpc",
        "job": {"scale_tier": "CUSTOM"},
        "task": {"type": "worker", "index": 0, "trial": "7"},
    }
    assert read(document) == TFConfig(
        task_type="worker",
        task_index=0,
        service={"key1": [1, 2], "key2": {"a": 3}},
        session_master="grpc://host:1",
        eval_session_master="",
        model_dir="/tmp/model",
        environment="google",
        rpc_layer="grpc",
    )


@pytest.mark.parametrize(
    "address",
    [
        "localhost:1",
        "worker_0.jobs.svc.cluster.local:2222",
        "[fe80::1%eth0]:2222",
        "host:0",
    ],
)
def test_an_address_is_a_host_and_a_port(address):
    document = {
        "cluster": {"chief": [address]},
        "task": {"type": "chief", "index": 0},
    }
    assert read(document).cluster == {"chief": (address,)}


def test_addresses_can_go_unchecked():
    cluster_spec = {"chief": ["grpc://h"], "worker": ["same", "same"]}
    config = read({"cluster": cluster_spec, "task": WORKER_1}, check_addresses=False)
    assert config.cluster == {"chief": ("grpc://h",), "worker": ("same", "same")}


ROUND_TRIPS = [
    TFConfig(),
    TFConfig(task_type="worker"),
    TFConfig(task_type="worker", task_index=0, service={}),
    TFConfig(cluster=Cluster(CLUSTER), task_type="evaluator", task_index=3),
    TFConfig(
        cluster=Cluster({"chief": ["[::1]:1"], "worker": {0: "h:1", 1: "h:2"}}),
        task_type="worker",
        task_index=1,
        service={"note": 'two\nlines, "quotes" and \u00e9', "deep": [{"x": None}]},
        session_master="",
        eval_session_master="grpc://h:3",
        model_dir="/tmp/a b",
        environment="cloud",
        rpc_layer="grpc",
    ),
]


@pytest.mark.parametrize("config", ROUND_TRIPS)
def test_what_is_written_is_read_back_equal(config):
    assert TFConfig.from_environ({"TF_CONFIG": config.to_json()}) == config


@pytest.mark.parametrize("config", ROUND_TRIPS)
def test_a_config_can_be_copied_pickled_hashed_and_printed(config):
    copies = [
        copy.deepcopy(config),
        copy.copy(config),
        dataclasses.replace(config),
        eval(repr(config)),
        *(
            pickle.loads(pickle.dumps(config, protocol))
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        ),
    ]
    assert copies == [config] * len(copies)
    assert {hash(each) for each in copies} == {hash(config)}


def test_any_json_is_a_config_or_a_config_error():
    rng = random.Random(20240229)
    scalars = [None, True, 0, 1, -1, 1.7, "", "1", "h:1", "h:2", "x\ny", "\ud800", []]
    jobs = ["chief", "master", "worker", "ps", "evaluator", "", "other"]
    keys = ["cluster", "task", "service", "model_dir", "session_master", "job"]

    def anything(depth=3):
        kind = rng.random() if depth else 0
        if kind < 0.5:
            return rng.choice(scalars)
        if kind < 0.75:
            return [anything(depth - 1) for _ in range(rng.randrange(4))]
        return {rng.choice(jobs): anything(depth - 1) for _ in range(rng.randrange(3))}

    def mostly(plausible):
        return plausible if rng.random() < 0.8 else anything()

    def tasks():
        return [mostly(f"h:{rng.randrange(1, 99)}") for _ in range(rng.randrange(1, 3))]

    def document():
        chosen = {key: anything() for key in rng.sample(keys, rng.randrange(3))}
        cluster_spec = {
            job: mostly(tasks()) for job in rng.sample(jobs, rng.randrange(3))
        }
        task = {
            "type": mostly(rng.choice(jobs)),
            "index": mostly(rng.choice([0, 1, "0"])),
        }
        return mostly(chosen | {"cluster": mostly(cluster_spec), "task": mostly(task)})

    configs, messages = 0, set()
    for _ in range(4_000):
        text = json.dumps(document())
        requirements = {
            "check_addresses": rng.random() < 0.5,
            "chief_required": rng.random() < 0.5,
            "task_required": rng.random() < 0.5,
        }
        try:
            config = TFConfig.from_environ({"TF_CONFIG": text}, **requirements)
        except ConfigError as error:
            messages.add(str(error))
        else:
            again = TFConfig.from_environ(
                {"TF_CONFIG": config.to_json()}, **requirements
            )
            assert again == config
            configs += 1
    # The seed reaches both outcomes, in many ways.
    assert configs > 300
    assert len(messages) > 300
    assert {len(message.splitlines()) for message in messages} == {1}
