"""Each kind of bad TF_CONFIG, and the one line that it ends in."""

import json

import pytest

from estimator_runtime.config.cluster_spec import shown
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.errors import ConfigError, ConfigTypeError

CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222", "host2:2222"],
    "worker": ["host3:2222", "host4:2222", "host5:2222"],
}
WORKER_1 = {"type": "worker", "index": 1}
EXAMPLE = (
    '{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


NO_CHIEF = (
    'If "cluster" is set in TF_CONFIG, it must have one "chief" node; '
    "add 'chief' with one address (only multi-worker strategies need none, as with "
    "--no-chief)"
)
NOT_AN_OBJECT = f"not an object; use one such as {EXAMPLE}"
NO_CLUSTER = "Add the cluster, or leave task out"


def bad_text(text, message):
    return pytest.param(text, ConfigError, message, id=repr(text[:20]))


def bad(document, message, error=ConfigError):
    text = json.dumps(document)
    return pytest.param(text, error, message, id=text[:70])


def bad_cluster(cluster, message, error=ConfigError):
    return bad({"cluster": cluster, "task": WORKER_1}, message, error)


def bad_address(address):
    """A cluster with `address` as that of its chief."""
    return bad_cluster(
        {"chief": [address], "worker": ["h:1", "h:2"]},
        f"TF_CONFIG: cluster['chief'][0] is {shown(address)}, which is no address; use "
        "'host:port', such as 'host0:2222' or '[::1]:2222'",
    )


def bad_task(task, message, error=ConfigError):
    return bad({"cluster": CLUSTER, "task": task}, message, error)


def bad_index(index, message, error=ConfigError):
    return bad_task({"type": "worker", "index": index}, message, error)


def bad_local_task(task, message, error=ConfigError):
    return bad({"task": task}, message, error)


BAD_FORMS = [
    # The JSON itself.
    bad_text(
        "",
        "TF_CONFIG: not JSON (Expecting value: line 1 column 1 (char 0)): ''; "
        f"use an object such as {EXAMPLE}, or unset it",
    ),
    bad_text(
        "chief",
        "TF_CONFIG: not JSON (Expecting value: line 1 column 1 (char 0)): 'chief'; "
        f"use an object such as {EXAMPLE}, or unset it",
    ),
    bad_text(
        '{"cluster": {"chief": ["host0:2222"], "ps": [host1:2222]}, "task": {}}',
        "TF_CONFIG: not JSON (Expecting value: line 1 column 46 (char 45)): "
        """'ef": ["host0:2222"], "ps": [host1:2222]}, "task": {}}'; """
        f"use an object such as {EXAMPLE}, or unset it",
    ),
    bad_text(
        '{"cluster": {"chief": ["a:1"], "chief": ["b:1"]}}',
        "TF_CONFIG: the key 'chief' appears twice in one object, as ['a:1'] and as "
        "['b:1']; keep one of them",
    ),
    bad([{"task": {}}], f"TF_CONFIG: the JSON is [{{'task': {{}}}}], {NOT_AN_OBJECT}"),
    # The form of the cluster.
    bad_cluster(
        None,
        "TF_CONFIG: cluster is None, not an object; use one such as "
        '{"chief": ["host0:2222"], "worker": ["host1:2222"]}',
        ConfigTypeError,
    ),
    bad_cluster(
        {"chief": ["h:1"], "worker": "h:2"},
        "TF_CONFIG: cluster['worker'] is 'h:2', not a list of addresses; "
        'use one such as ["host:2222"]',
        ConfigTypeError,
    ),
    bad_cluster(
        {"chief": ["h:1"], "worker": ["h:2", ["h:3"]]},
        "TF_CONFIG: cluster['worker'] is ['h:2', ['h:3']], not a list of addresses; "
        'use one such as ["host:2222"]',
        ConfigTypeError,
    ),
    bad_cluster(
        {"ps": [], "worker": []},
        "TF_CONFIG: cluster is {'ps': [], 'worker': []}, jobs without tasks only; "
        "list their addresses, or leave the cluster out",
    ),
    bad_cluster(
        {"chief": [], "worker": ["h:1", "h:2"]},
        "TF_CONFIG: cluster['chief'] is [], a job without tasks; "
        "list its address, or leave the job out",
    ),
    bad_cluster(
        {"chief": ["h:1"], "worker": {"0": "h:2", "2": "h:3"}},
        "TF_CONFIG: cluster['worker'] has the indexes ['0', '2']; "
        "name each index from 0 to 1 once, or use a list of addresses",
    ),
    # The chief.
    bad_cluster(
        {"worker": ["h:1", "h:2"], "ps": ["h:3"]},
        f"TF_CONFIG: cluster has the jobs ['worker', 'ps']. {NO_CHIEF}",
    ),
    bad_cluster(
        {"chief": ["h:1", "h:2"], "worker": ["h:3", "h:4"]},
        "TF_CONFIG: cluster['chief'] has 2 addresses. "
        'The "cluster" in TF_CONFIG must have only one "chief" node. '
        "Keep one, and list the others under 'worker'",
    ),
    bad_cluster(
        {"master": ["h:1"], "chief": ["h:2"], "worker": ["h:3", "h:4"]},
        "TF_CONFIG: cluster has both the jobs 'chief' and 'master'. "
        "If `master` node exists in `cluster`, job `chief` is not supported. "
        "Keep 'chief', and list the other address under 'worker'",
    ),
    # The form of the task.
    bad_task(
        "worker",
        "TF_CONFIG: task is 'worker', not an object; "
        'use one such as {"type": "worker", "index": 0}',
    ),
    # The type of the task.
    bad(
        {"cluster": CLUSTER},
        'TF_CONFIG: task.type is missing. If "cluster" is set in TF_CONFIG, task type '
        "must be set; use one of ['chief', 'ps', 'worker', 'evaluator']",
    ),
    bad_task(
        {"type": "wroker", "index": 0},
        "TF_CONFIG: task.type is 'wroker', which is not a valid task_type in this "
        "cluster; use one of ['chief', 'ps', 'worker', 'evaluator']",
    ),
    bad(
        {"cluster": {"master": ["h:1"]}, "task": {"type": "evaluator", "index": 0}},
        "TF_CONFIG: task.type is 'evaluator'. If `master` node exists in `cluster`, "
        "task_type `evaluator` is not supported. Rename the job 'master' to 'chief'",
    ),
    *(
        bad_task(
            {"type": task_type, "index": 0},
            f"TF_CONFIG: task.type is {task_type!r}, which is not a valid task_type in "
            "this cluster; use one of ['chief', 'ps', 'worker', 'evaluator']",
        )
        for task_type in (0, [])
    ),
    # The index of the task.
    bad_task(
        {"type": "worker"},
        'TF_CONFIG: task.index is missing. If "cluster" is set in TF_CONFIG, task '
        "index must be set; use 0 to 2",
    ),
    *(
        bad_index(
            index,
            f"TF_CONFIG: task.index is {index!r}, not a whole number; use 0 to 2",
            ConfigTypeError,
        )
        for index in ("x", [1])
    ),
    bad_index(
        -1,
        "TF_CONFIG: task.index is -1. Task index must be non-negative number. "
        "Use 0 to 2",
    ),
    bad_index(
        "7",
        "TF_CONFIG: task.index 7 is not a valid task_id for task_type worker in this "
        "cluster; use 0 to 2",
    ),
    # A task without a cluster.
    bad_local_task(
        {"type": "chief", "index": 0},
        "TF_CONFIG: task.type is 'chief'. If \"cluster\" is not set in TF_CONFIG, "
        f"task type must be WORKER. {NO_CLUSTER}",
    ),
    bad_local_task(
        {"type": "worker", "index": 1},
        'TF_CONFIG: task.index is 1. If "cluster" is not set in TF_CONFIG, '
        f"task index must be 0. {NO_CLUSTER}",
    ),
    # Addresses.
    *map(
        bad_address,
        [
            *("grpc://host:1", "://host:1", "host", "", "[::1]", "[::1]2222", ":2222"),
            *("host:", "host:x", "host:-1", "host:+1", "host:1.5", "host:65536"),
            *(
                "host:99999",
                "host:\u0663",
                "host :1",
                " host:1",
                "host:1\n",
                "host:\t1",
            ),
            *("ho\0st:1", "a..b:1", "é..b:1", ".a:1", f"{64 * 'a'}:1", "::1:2222"),
            *("host:1:2", "[host]:1", "[]:1", "[1.2.3.4]:1", "host/path:1"),
            *("user@host:1", "[::1]x:1"),
        ],
    ),
    bad_cluster(
        {"chief": ["h:1"], "worker": ["h:2", "h:2"]},
        "TF_CONFIG: cluster['worker'][1] is 'h:2', the same address as "
        "cluster['worker'][0]; give every task an address of its own",
    ),
    # The settings.
    bad(
        {"service": 789},
        "TF_CONFIG: service is 789. "
        'If "service" is set in TF_CONFIG, it must be a dict. '
        "Given int; use an object, or leave service out",
        ConfigTypeError,
    ),
    bad(
        {"session_master": 7},
        "TF_CONFIG: session_master is 7, not a string; "
        "put it in quotes, or leave session_master out",
    ),
    bad(
        {"model_dir": ""},
        "TF_CONFIG: model_dir is ''. model_dir in TF_CONFIG should be non-empty; "
        "name a folder, or leave model_dir out",
    ),
]


@pytest.mark.parametrize(("text", "error", "message"), BAD_FORMS)
def test_a_bad_form_is_one_line_with_field_value_and_remedy(text, error, message):
    with pytest.raises(ConfigError) as caught:
        TFConfig.from_environ({"TF_CONFIG": text})
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError) == (error is ConfigTypeError)
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3_000_000,
        '{"cluster": ' * 300_000,
        '{"task": {"type": "worker", "index": ' + "9" * 100_000 + "}}",
        '{"cluster": {"' + "j" * 1_000_000 + '": []}}',
        json.dumps(
            {"cluster": {"chief": ["h" * 1_000_000]}, "task": {"type": "chief"}}
        ),
        json.dumps({"cluster": {f"job{i}": ["h:1"] for i in range(10_000)}}),
    ],
    ids=lambda text: text[:36],
)
def test_megabytes_of_nonsense_end_in_one_short_line(text):
    with pytest.raises(ConfigError) as caught:
        TFConfig.from_environ({"TF_CONFIG": text})
    assert len(str(caught.value)) < 1000
    assert len(str(caught.value).splitlines()) == 1
