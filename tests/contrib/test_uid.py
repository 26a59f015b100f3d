"""The uid of a RunConfig: equal in every process for equal configs."""

import json

_PRINT_UID = """
import estimator_runtime, tensorflow as tf
from estimator_runtime.contrib.learn import RunConfig
def place(op): return "/cpu:0"
config = RunConfig(num_cores=2, session_config=
    tf.compat.v1.ConfigProto(device_count={"GPU": 1, "CPU": 2, "TPU": 3}))
mirrored = tf.distribute.MirroredStrategy(["/cpu:0"])
config = config.replace(device_fn=place, train_distribute=mirrored)
print(config.uid(whitelist=[]))
"""


def test_the_uid_is_the_same_in_processes_with_other_hashes_and_addresses(run_python):
    tf_config = {
        "cluster": {"ps": ["p0:1"], "worker": ["w0:1", "w1:1"]},
        "task": {"type": "worker", "index": 1},
        "service": {"a": [1, None], "b": {"c": True}},
    }
    own = {"TF_CONFIG": json.dumps(tf_config)}
    done = [
        run_python("-W", "ignore", "-c", _PRINT_UID, PYTHONHASHSEED=seed, **own)
        for seed in "12"
    ]
    assert [each.returncode for each in done] == [0, 0], done
    uids = [each.stdout for each in done]
    assert uids[0] == uids[1]
    assert " at 0x" not in uids[0]
    told = ("MirroredStrategy", "place", "GPU", "w1:1", "'c': True")
    assert [each for each in told if each not in uids[0]] == []
