"""Which part of a dataset a task reads."""

import pytest
import tensorflow as tf

import estimator_runtime as er

v1 = tf.compat.v1
_CLUSTER = {"chief": ["h:1"], "worker": ["h:2", "h:3"], "ps": ["h:4"]}


def _read(dataset):
    with v1.Session() as session:
        element = v1.data.make_one_shot_iterator(dataset).get_next()
        found = []
        while True:
            try:
                found.append(int(session.run(element)))
            except tf.errors.OutOfRangeError:
                return found


@pytest.mark.parametrize(
    "task, index, expected",
    [
        ("chief", 0, [0, 3, 6]),
        ("worker", 0, [1, 4, 7]),
        ("worker", 1, [2, 5, 8]),
        ("ps", 0, list(range(9))),
        ("evaluator", 0, list(range(9))),
    ],
)
def test_each_task_that_trains_reads_its_own_part(set_tf_config, task, index, expected):
    set_tf_config({"cluster": _CLUSTER, "task": {"type": task, "index": index}})
    config = er.RunConfig()
    with tf.Graph().as_default():
        assert _read(er.shard(tf.data.Dataset.range(9), config)) == expected


def test_one_process_reads_all():
    dataset = tf.data.Dataset.range(9)
    assert er.shard(dataset, er.RunConfig()) is dataset


def test_a_strategy_shards_by_itself(set_tf_config):
    set_tf_config({"cluster": _CLUSTER, "task": {"type": "worker", "index": 0}})
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    dataset = tf.data.Dataset.range(9)
    assert er.shard(dataset, er.RunConfig(train_distribute=strategy)) is dataset
