"""Whether a script's text shows that its tasks would train on equal batches."""

import ast

import pytest

from estimator_runtime.cli.doctor import batches
from estimator_runtime.cli.doctor.finding import NOTE, Finding
from estimator_runtime.config.cluster_spec import Cluster
from estimator_runtime.config.tf_config import TFConfig

SCRIPT = """
import os, json
import tensorflow as tf

def input_fn():
    data = tf.data.Dataset.from_tensor_slices([1, 2])
    return data.repeat().shuffle(
        10
    ).batch(2)

os.environ["TF_CONFIG"] = json.dumps({"cluster": {}})
config = tf.estimator.RunConfig(tf_random_seed=1)
tf.estimator.train_and_evaluate(make(config), input_fn)
"""
HERE = TFConfig()
PS = TFConfig(cluster=Cluster({"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}))
ALONE = TFConfig(cluster=Cluster({"chief": ["a:1"], "ps": ["c:1"]}))
WITHOUT_PS = TFConfig(cluster=Cluster({"worker": ["a:1", "b:1"]}))
FINDING = Finding(
    NOTE,
    "script",
    "train.py:7: with tf_random_seed, shuffle() gives the chief and the workers of a job "
    "with parameter servers the same batches; before it, write dataset = "
    "estimator_runtime.shard(dataset, config), where config is the RunConfig",
)


def examine(config, **sources):
    files = [
        (f"{name}.py", batches.read(ast.parse(text))) for name, text in sources.items()
    ]
    return list(batches.examine(files, config))


@pytest.mark.parametrize(
    "config, is_told", [(HERE, True), (None, True), (PS, True), (ALONE, False), (WITHOUT_PS, False)]
)  # fmt: skip
def test_equal_batches_are_told_where_the_cluster_may_have_a_ps(config, is_told):
    assert examine(config, train=SCRIPT) == [FINDING] * is_told


def test_a_script_that_is_not_about_a_cluster_is_told_only_if_it_is_a_task_of_one():
    script = SCRIPT.replace("TF_CONFIG", "HOME")
    assert examine(HERE, train=script) == []
    assert examine(PS, train=script) == [FINDING]


@pytest.mark.parametrize(
    "old, new",
    [
        (".repeat()", ".shard(n, i)"),
        ("data.repeat()", "er.shard(data, config)"),
        ("def input_fn()", "def input_fn(input_context)"),
        ("tf_random_seed=1", "tf_random_seed=1, train_distribute=strategy"),
        ("tf_random_seed=1", "tf_random_seed=1 + task['task_index']"),
        ("tf_random_seed=1", "tf_random_seed=None"),
        ("tf_random_seed=1", ""),
        (".shuffle(", ".take("),
        ("data.repeat().shuffle(", "random.shuffle("),
        ("data.repeat().shuffle(", "np.random.shuffle("),
    ],
)
def test_what_may_make_the_batches_differ_is_no_finding(old, new):
    assert old in SCRIPT
    assert examine(PS, train=SCRIPT.replace(old, new)) == []


def test_the_parts_of_a_program_are_read_together():
    data = "def input_fn(d):\n    return d.shuffle(9)\n"
    main = "config = tf.estimator.RunConfig(tf_random_seed=SEED)\n"
    (found,) = examine(PS, train=main, data=data)
    assert found.text.startswith("data.py:2: with tf_random_seed, shuffle() gives")
    assert examine(PS, train=main, data=data + "worker_index = 3\n") == []
