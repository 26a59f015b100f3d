"""Which part of a dataset a task reads, and when two tasks read the same."""

import pytest
import tensorflow as tf

import estimator_runtime as er
from estimator_runtime.distributed.input_sharding import fingerprint

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


def _fingerprint(build, seed=None, make=v1.data.make_one_shot_iterator):
    with tf.Graph().as_default() as graph:
        if seed is not None:
            v1.set_random_seed(seed)
        make(build()).get_next()
        return fingerprint(graph)


def _range(stop=9):
    return tf.data.Dataset.range(stop)


@pytest.mark.parametrize(
    "make", [v1.data.make_one_shot_iterator, v1.data.make_initializable_iterator]
)
def test_the_same_order_has_the_same_fingerprint(make):
    def shuffled():
        return _range().map(lambda x: x + 1).shuffle(9).batch(2)

    first = _fingerprint(shuffled, 7, make)
    assert first is not None and first == _fingerprint(shuffled, 7, make)
    assert first != _fingerprint(shuffled, 8, make)
    assert (
        _fingerprint(_range, make=make) == _fingerprint(_range, make=make) is not None
    )


def test_another_shard_another_file_or_another_function_has_another_fingerprint():
    found = [
        _fingerprint(build)
        for build in (
            _range,
            lambda: _range(8),
            lambda: _range().shard(2, 0),
            lambda: _range().shard(2, 1),
            lambda: _range().map(lambda x: x + 1),
            lambda: _range().map(lambda x: x + 2),
            lambda: tf.data.TextLineDataset("a"),
            lambda: tf.data.TextLineDataset("b"),
        )
    ]
    assert None not in found and len(set(found)) == len(found)


@pytest.mark.parametrize(
    "build",
    [
        lambda: _range().shuffle(9),
        lambda: _range().apply(tf.data.experimental.shuffle_and_repeat(9)),
        lambda: tf.data.Dataset.from_generator(lambda: iter(range(9)), tf.int64),
        lambda: _range().map(lambda x: tf.numpy_function(abs, [x], tf.int64)),
    ],
)
def test_what_may_differ_has_no_fingerprint(build):
    assert _fingerprint(build) is None


def test_a_graph_without_a_dataset_has_no_fingerprint():
    assert fingerprint(tf.Graph()) is None
