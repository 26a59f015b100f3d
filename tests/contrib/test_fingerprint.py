"""Text for values, and the uid that a RunConfig makes of it."""

import collections
import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib.fingerprint import describe
from estimator_runtime.contrib.learn import RunConfig

estimator_runtime.install()

pytestmark = pytest.mark.filterwarnings(
    "ignore:estimator_runtime.contrib.learn.RunConfig is:DeprecationWarning"
)

_PS_AND_WORKERS = {
    "cluster": {"ps": ["p0:1"], "worker": ["w0:1", "w1:1"]},
    "task": {"type": "worker", "index": 1},
}
_Pair = collections.namedtuple("_Pair", "left right")


class _Placer:
    def __init__(self, job):
        self.job = job
        self.itself = self

    def place(self, op):
        return self.job


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (True, "True"),
        (b"a", "b'a'"),
        ("a\nb", "'a\\nb'"),
        (100, "100"),
        (100.0, "100"),
        (0.5, "0.5"),
        (float("inf"), "inf"),
        (2**70 + 1, "1180591620717411303425"),
        ([1, (2, "3")], "(1, (2, '3'))"),
        (_Pair(left=1, right=2), "(1, 2)"),
        ({"b": 1, "a": [2]}, "{'a': (2), 'b': 1}"),
        (frozenset("cab"), "{'a', 'b', 'c'}"),
        (pathlib.PurePosixPath("/m"), "PurePosixPath('/m')"),
        (len, "builtins.len"),
        (collections.OrderedDict, "collections.OrderedDict"),
        (functools.partial(len, 1, x=2), "partial(builtins.len, (1), {'x': 2})"),
        (tf.train.ClusterSpec({"ps": ["h:1"]}), "{'ps': ('h:1')}"),
        (
            tf.compat.v1.ConfigProto(device_count={"GPU": 1, "CPU": 2}),
            'tensorflow.ConfigProto(device_count { key: "CPU" value: 2 } '
            'device_count { key: "GPU" value: 1 })',
        ),
        (
            _Placer("ps").place,
            f"{__name__}._Placer{{'itself': ..., 'job': 'ps'}}.place",
        ),
        (
            tf.distribute.OneDeviceStrategy("/cpu:0"),
            "tensorflow.python.distribute.one_device_strategy.OneDeviceStrategy"
            "(('/job:localhost/replica:0/task:0/device:CPU:0'), "
            "('/job:localhost/replica:0/task:0/device:CPU:0'))",
        ),
    ],
)
def test_a_value_is_described_by_what_it_says(value, text):
    assert describe(value) == text


def test_an_object_without_attributes_is_described_without_its_address():
    assert describe(object()) == "<object object>"


def test_what_occurs_twice_is_described_twice():
    shared = [1]
    assert describe([shared, shared]) == "((1), (1))"


_PRINT_UID = """
import tensorflow as tf
from estimator_runtime.contrib.learn import RunConfig
def place(op): return "/cpu:0"
config = RunConfig(num_cores=2, gpu_memory_fraction=0.3, session_config=
    tf.compat.v1.ConfigProto(device_count={"GPU": 1, "CPU": 2, "TPU": 3}))
config = config.replace(
    device_fn=place,
    train_distribute=tf.distribute.MirroredStrategy(["/cpu:0"]),
    eval_distribute=tf.distribute.OneDeviceStrategy("/cpu:0"),
)
config.tags = {"b", "a", "c", "d"}
print(config.uid(whitelist=[]))
"""


def test_the_uid_is_the_same_in_processes_with_other_hashes_and_addresses():
    tf_config = {**_PS_AND_WORKERS, "service": {"a": [1, None], "b": {"c": True}}}
    uids = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _PRINT_UID],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "TF_CONFIG": json.dumps(tf_config),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert uids[0] == uids[1]
    assert " at 0x" not in uids[0]
    for told in (
        "OneDeviceStrategy",
        "MirroredStrategy",
        "place",
        "GPU",
        "w1:1",
        "'c': True",
    ):
        assert told in uids[0]


def test_the_uid_is_changed_by_what_1_15_could_not_set(set_tf_config):
    set_tf_config(_PS_AND_WORKERS)
    config = RunConfig()
    set_tf_config({**_PS_AND_WORKERS, "service": {"name": "x"}})
    uids = {
        config.uid(),
        RunConfig().uid(),
        config.replace(device_fn=lambda op: "").uid(),
        config.replace(experimental_max_worker_delay_secs=1).uid(),
        config.replace(
            train_distribute=tf.distribute.OneDeviceStrategy("/cpu:0")
        ).uid(),
        config.replace(eval_distribute=tf.distribute.OneDeviceStrategy("/cpu:0")).uid(),
    }
    assert len(uids) == 6
