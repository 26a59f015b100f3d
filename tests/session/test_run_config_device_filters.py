"""Device filters keep chief and workers from waiting for each other."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.patching.frozen import StockRunConfig

CLUSTER = {
    "chief": ["host0:2222"],
    "ps": ["host1:2222"],
    "worker": ["host2:2222", "host3:2222"],
    "tester": ["host4:2222"],
}
FILTERS = {
    ("chief", 0): ["/job:ps", "/job:chief"],
    ("worker", 1): ["/job:ps", "/job:worker/task:1"],
    ("ps", 0): ["/job:ps", "/job:worker", "/job:chief", "/job:master"],
    ("evaluator", 0): [],
    ("tester", 0): [],
}


def _session_config(**fields):
    return tf.compat.v1.ConfigProto(intra_op_parallelism_threads=3, **fields)


@pytest.fixture(params=FILTERS, ids=lambda task: task[0])
def usual_filters(request, set_tf_config):
    """Be each kind of task of a cluster in turn; gives its usual device filters."""
    task_type, index = request.param
    set_tf_config({"cluster": CLUSTER, "task": {"type": task_type, "index": index}})
    return FILTERS[request.param]


def test_a_session_config_of_your_own_gets_the_device_filters(usual_filters):
    mine = _session_config()
    config = er.RunConfig(session_config=mine)
    assert config.session_config == _session_config(device_filters=usual_filters)
    assert mine == _session_config()
    assert StockRunConfig(session_config=mine).session_config == mine


def test_a_replaced_session_config_gets_the_device_filters(usual_filters):
    mine = _session_config()
    config = er.RunConfig().replace(session_config=mine)
    assert config.session_config == _session_config(device_filters=usual_filters)
    assert mine == _session_config()


@pytest.mark.usefixtures("usual_filters")
def test_device_filters_of_your_own_are_kept():
    mine = _session_config(device_filters=["/job:mine"])
    assert er.RunConfig(session_config=mine).session_config == mine
    assert er.RunConfig().replace(session_config=mine).session_config == mine


def test_a_local_session_config_is_the_one_given():
    mine = _session_config()
    assert er.RunConfig(session_config=mine).session_config is mine


def test_with_a_strategy_the_coordinator_chooses_the_device_filters(set_tf_config):
    set_tf_config({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = er.RunConfig(session_config=_session_config(), train_distribute=strategy)
    assert config.session_config == _session_config()
    changed = config.replace(session_config=_session_config(placement_period=2))
    assert changed.session_config == _session_config(placement_period=2)
