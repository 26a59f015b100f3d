"""TF_CONFIG by the rules of TensorFlow 1.15, where no answer of its own is recorded."""

import json

import pytest

from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.contrib.learn import Place
from estimator_runtime.errors import ConfigError

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
            {"task": {"index": 1.7}},
            "TF_CONFIG: task.index is 1.7, not a whole number; use " + _INDEX,
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
