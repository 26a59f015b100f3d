"""TF_CONFIG by the rules of TensorFlow 1.15, where no answer of its own is recorded."""

import json

import pytest

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.contrib.learn import Place
from estimator_runtime.errors import ConfigError, ConfigTypeError

_INDEX = "0 or more, or leave index out"
_TYPE = 'use one such as "worker", or leave type out'
_NOT_LISTED = "is not a valid task_type in this cluster; use one of ['ps', 'worker']"
_CLUSTER = {"ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"]}


def _read(document):
    return Place.from_environ({"TF_CONFIG": json.dumps(document)})


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_without_tf_config_the_task_is_nameless_and_leads(environ):
    place = Place.from_environ(environ)
    assert place == Place(
        cluster=Cluster(),
        task_type=None,
        task_id=0,
        environment="local",
        service=None,
        model_dir=None,
    )
    assert (place.is_chief, place.address, place.global_id) == (True, "", 0)


def test_null_is_as_good_as_absent_in_a_task():
    document = {"cluster": _CLUSTER, "task": {"type": None, "index": None}}
    assert _read(document) == _read({"cluster": _CLUSTER})


@pytest.mark.parametrize(
    ("cluster", "order"),
    [
        (_CLUSTER, ["worker 0", "worker 1", "ps 0", "ps 1"]),
        (
            {"worker": ["w:1"], "ps": ["p:1"], "master": ["m:1"]},
            ["master 0", "worker 0", "ps 0"],
        ),
        (
            {"ps": ["p:1"], "a": ["a:1"], "chief": ["c:1"], "b": ["b:1"]},
            ["chief 0", "a 0", "b 0", "ps 0"],
        ),
    ],
)
def test_all_tasks_are_numbered_chief_first_ps_last(cluster, order):
    ids = {}
    for task_type, addresses in cluster.items():
        for index in range(len(addresses)):
            task = {"type": task_type, "index": index}
            ids[_read({"cluster": cluster, "task": task}).global_id] = (
                f"{task_type} {index}"
            )
    assert [ids[number] for number in range(len(order))] == order


@pytest.mark.parametrize(
    "task", [{}, {"type": "evaluator"}, {"type": "ps", "index": 2}]
)
def test_a_task_that_its_cluster_does_not_list_has_no_number(task):
    assert _read({"cluster": _CLUSTER, "task": task}).global_id is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"task": 5},
            "TF_CONFIG: task is 5, not an object; "
            'use one such as {"type": "worker", "index": 0}',
        ),
        (
            {"task": {"type": 5}},
            "TF_CONFIG: task.type is 5, not the name of a job; " + _TYPE,
        ),
        (
            {"task": {"type": ""}},
            "TF_CONFIG: task.type is '', not the name of a job; " + _TYPE,
        ),
        (
            {"task": {"index": 1.7}},
            "TF_CONFIG: task.index is 1.7, not a whole number; use " + _INDEX,
        ),
        (
            {"task": {"index": True}},
            "TF_CONFIG: task.index is true, not a whole number; use " + _INDEX,
        ),
        (
            {"task": {"index": "one"}},
            "TF_CONFIG: task.index is 'one', not a whole number; use " + _INDEX,
        ),
        (
            {"task": {"index": -1}},
            "TF_CONFIG: task.index is -1. Task index must be non-negative number. "
            "Use " + _INDEX,
        ),
        (
            {"cluster": _CLUSTER, "task": {"type": "worker", "index": 2}},
            "TF_CONFIG: task.index is 2, but cluster['worker'] has 2 addresses, "
            "so 2 is not a valid task_id for task_type worker; use 0 to 1",
        ),
        (
            {"cluster": {"worker": ["w:1"]}, "task": {"type": "worker", "index": 1}},
            "TF_CONFIG: task.index is 1, but cluster['worker'] has 1 address, "
            "so 1 is not a valid task_id for task_type worker; use 0",
        ),
        (
            {"cluster": _CLUSTER, "task": {"type": "nobody"}},
            "TF_CONFIG: task.type is 'nobody', but nobody " + _NOT_LISTED,
        ),
        (
            {"cluster": _CLUSTER, "task": {"type": "evaluator"}},
            "TF_CONFIG: task.type is 'evaluator', but evaluator " + _NOT_LISTED,
        ),
    ],
    ids=str,
)
def test_a_bad_task_is_named_with_what_would_do(document, message):
    with pytest.raises(ConfigError) as caught:
        _read(document).check_task()
    assert str(caught.value) == message


@pytest.mark.parametrize("index", [[0], {"0": 0}])
def test_an_index_that_is_no_scalar_is_a_type_error_as_in_1_15(index):
    with pytest.raises(ConfigTypeError, match=r"^TF_CONFIG: task.index is "):
        _read({"task": {"index": index}})


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("{", "TF_CONFIG: not JSON"),
        ("[1]", "TF_CONFIG: the JSON is [1], not an object"),
        ("[" * 100_000, "TF_CONFIG: nested too deeply"),
        ('{"cluster": 5}', "TF_CONFIG: cluster is 5, not an object"),
        (
            '{"cluster": {"worker": "w:1"}}',
            "TF_CONFIG: cluster['worker'] is 'w:1', not a list",
        ),
        (
            '{"cluster": {"worker": []}}',
            "TF_CONFIG: cluster is {'worker': []}, jobs without tasks only",
        ),
        (
            '{"cluster": {"worker": ["w"]}}',
            "TF_CONFIG: cluster['worker'][0] is 'w', which has no port",
        ),
        (
            '{"cluster": {"worker": ["grpc://w:1"]}}',
            "TF_CONFIG: cluster['worker'][0] is 'grpc://w:1', which has a scheme",
        ),
        (
            '{"cluster": {"worker": ["w:99999"]}}',
            "TF_CONFIG: cluster['worker'][0] is 'w:99999', whose port is '99999'",
        ),
        (
            '{"cluster": {"worker": ["w:1", "w:1"]}}',
            "TF_CONFIG: cluster['worker'][1] is 'w:1', the same address",
        ),
        (
            '{"cluster": {"master": ["a:1", "b:1"]}}',
            "TF_CONFIG: cluster['master'] has 2 addresses",
        ),
        (
            '{"cluster": {"chief": ["a:1"], "master": ["b:1"]}}',
            "TF_CONFIG: cluster has both the jobs 'chief' and 'master'",
        ),
        (
            '{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}',
            "TF_CONFIG: the key 'worker' appears twice in one object",
        ),
        ('{"service": 5}', "TF_CONFIG: service is 5"),
        ('{"environment": 5}', "TF_CONFIG: environment is 5, not a string"),
        ('{"model_dir": ""}', "TF_CONFIG: model_dir is ''"),
    ],
)
def test_anything_else_that_is_bad_is_refused_as_for_every_run_config(text, start):
    with pytest.raises(ConfigError) as caught:
        Place.from_environ({"TF_CONFIG": text})
    assert str(caught.value).startswith(start)
    assert "\n" not in str(caught.value)
