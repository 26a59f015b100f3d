"""Every kind of bad TF_CONFIG ends `estimator-runtime run` at once, in one line.

Each in a process of its own: what TensorFlow does with some of them is to hang, or to
abort the process.
"""

import json
import os
import subprocess
import sys

import pytest

_CLUSTER = {"chief": ["h:1"], "worker": ["h:2", "h:3"], "ps": ["h:4"]}
_WORKER = {"type": "worker", "index": 0}


def _chief(*addresses):
    return {"cluster": {**_CLUSTER, "chief": list(addresses)}, "task": _WORKER}


def _workers(addresses):
    return {"cluster": {**_CLUSTER, "worker": addresses}, "task": _WORKER}


def _index(index):
    return {"cluster": _CLUSTER, "task": {"type": "worker", "index": index}}


def _type(task_type):
    return {"cluster": _CLUSTER, "task": {"type": task_type, "index": 0}}


# What it is, and what the line names: the field, with the value as it was written.
_BAD = [
    ("chief", "not JSON (Expecting value"),
    ("{'cluster': {}}", "not JSON (Expecting property name"),
    ('{"cluster": {"chief": ["h:1"]', "not JSON ("),
    ('{"cluster": {}} {}', "not JSON (Extra data"),
    ('{"cluster": {}, "cluster": {}}', "the key 'cluster' appears twice"),
    ([], "the JSON is []"),
    ("7", "the JSON is 7"),
    ("null", "the JSON is null"),
    ({"cluster": ["h:1"], "task": _WORKER}, "cluster is ['h:1'], not an object"),
    ({"cluster": None, "task": _WORKER}, "cluster is null, not an object"),
    (_workers("h:2"), "cluster['worker'] is 'h:2'"),
    (_workers(None), "cluster['worker'] is null"),
    (_workers([]), "task.type is 'worker', which is not a valid task_type"),
    ({"cluster": {"chief": []}, "task": _WORKER}, "cluster['chief'] is []"),
    ({"cluster": {"worker": []}, "task": _WORKER}, "cluster is {'worker': []}, jobs"),
    (_workers([2]), "cluster['worker'][0] is 2"),
    (_workers([["h:2"]]), "cluster['worker'][0] is ['h:2']"),
    (_workers({"first": "h:2"}), "cluster['worker']"),
    (_chief(""), "cluster['chief'][0] is ''"),
    (_chief("h"), "cluster['chief'][0] is 'h'"),
    (_chief("h:"), "cluster['chief'][0] is 'h:'"),
    (_chief(":1"), "cluster['chief'][0] is ':1'"),
    (_chief("h:http"), "cluster['chief'][0] is 'h:http'"),
    (_chief("h:99999"), "cluster['chief'][0] is 'h:99999'"),
    (_chief("h:-1"), "cluster['chief'][0] is 'h:-1'"),
    (_chief("h:1.5"), "cluster['chief'][0] is 'h:1.5'"),
    (_chief("::1:1"), "cluster['chief'][0] is '::1:1'"),
    (_chief("grpc://h:1"), "cluster['chief'][0] is 'grpc://h:1'"),
    (_chief("h:1/path"), "cluster['chief'][0] is 'h:1/path'"),
    (_chief("h:2"), "'h:2'"),  # that is worker 0, too
    (_chief("h:1", "h:5"), "cluster['chief'] has 2 addresses"),
    (
        {"cluster": {**_CLUSTER, "master": ["h:5"]}, "task": _WORKER},
        "cluster has both the jobs 'chief' and 'master'",
    ),
    ({"cluster": _CLUSTER, "task": "worker"}, "task is 'worker', not an object"),
    (_index("first"), "task.index is 'first'"),
    (_index(1.7), "task.index is 1.7"),
    (_index(True), "task.index is true"),
    (_index(None), "task.index is null"),
    (_index([0]), "task.index is [0]"),
    (_index(-1), "task.index is -1"),
    (_index(2), "task.index is 2, but cluster['worker'] has 2 addresses"),
    (_type("wroker"), "task.type is 'wroker'"),
    (_type(""), "task.type is ''"),
    (_type(5), "task.type is 5"),
    ({"cluster": _CLUSTER, "task": _WORKER, "service": 7}, "service is 7"),
    ({"cluster": _CLUSTER, "task": _WORKER, "model_dir": ""}, "model_dir is ''"),
]


def _text(content):
    return content if isinstance(content, str) else json.dumps(content)


@pytest.mark.parametrize(
    "content, named", [pytest.param(*each, id=_text(each[0])[:80]) for each in _BAD]
)
def test_a_bad_tf_config_is_one_line_before_anything_runs(content, named, tmp_path):
    (tmp_path / "train.py").write_text("print('ran')")
    done = subprocess.run(
        [sys.executable, "-m", "estimator_runtime", "run", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "TF_CONFIG": _text(content)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("estimator-runtime: error: TF_CONFIG: ")
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_there_are_45_kinds():
    assert len(_BAD) == 45
