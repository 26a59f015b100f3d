"""The tables of tf.contrib: what is named exists, and the rest is explained."""

import importlib
import re

import pytest
import tensorflow as tf

import estimator_runtime
from estimator_runtime.contrib import names
from estimator_runtime.tf1 import facade

estimator_runtime.install()

# Used by 5 or more of 94 repositories of TensorFlow 1, in 2019.
_USED = """
cluster_resolver.TPUClusterResolver data.AUTOTUNE data.batch_and_drop_remainder
data.group_by_window data.map_and_batch data.parallel_interleave
data.shuffle_and_repeat distribute.MirroredStrategy framework.get_global_step
framework.list_variables framework.load_checkpoint framework.nest layers.batch_norm
layers.conv2d layers.flatten layers.fully_connected layers.l2_regularizer
layers.layer_norm layers.optimize_loss layers.variance_scaling_initializer
layers.xavier_initializer learn.Estimator learn.Experiment learn.ModeKeys
learn.RunConfig learn.io learn.python.learn.learn_runner
lookup.index_table_from_file lookup.index_table_from_tensor metrics.f1_score
metrics.streaming_pearson_correlation predictor.from_saved_model rnn.BasicLSTMCell
rnn.DropoutWrapper rnn.GRUCell rnn.LayerNormBasicLSTMCell rnn.MultiRNNCell
rnn.ResidualWrapper seq2seq.sequence_loss slim slim.arg_scope slim.batch_norm
slim.conv2d slim.fully_connected slim.get_variables_to_restore summary.all_summary_ops
summary.always_record_summaries summary.create_file_writer
summary.record_summaries_every_n_global_steps summary.scalar tpu.CrossShardOptimizer
tpu.InputPipelineConfig tpu.RunConfig tpu.TPUConfig tpu.TPUEstimator
tpu.TPUEstimatorSpec tpu.initialize_system tpu.python.tpu.tpu_config
tpu.python.tpu.tpu_estimator training.HParams training.checkpoints_iterator
training.python.training.hparam
""".split()
# Modules that 4 or more of them use.
_MODULES = """
boosted_trees cloud cluster_resolver crf cudnn_rnn data distribute eager estimator
framework image layers learn lookup metrics opt predictor rnn seq2seq slim summary
tensorboard tensorrt tfprof tpu training util
""".split()


def _canonical(name):
    """Return a name by the longest alias that it begins with."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        target = names.ALIASES.get(".".join(parts[:count]))
        if target is not None:
            return ".".join([target, *parts[count:]])
    return name


def _is_known(name):
    """Return whether a name, or names below it, are in the tables."""
    known = {*names.AVAILABLE, *names.ALIASES, *names.MISSING}
    return any(each == name or each.startswith(f"{name}.") for each in known)


@pytest.mark.parametrize("name", [*_USED, *_MODULES])
def test_what_many_programs_use_is_available_or_explained(name):
    canonical = _canonical(name)
    # slim stands for a whole module.
    assert _is_known(canonical) or canonical.startswith("slim.")


def test_the_tables_do_not_contradict_each_other():
    assert not set(names.AVAILABLE) & set(names.MISSING)
    assert not set(names.AVAILABLE) & set(names.ALIASES)
    lost = {
        alias: target
        for alias, target in names.ALIASES.items()
        if not (_is_known(target) or target.startswith("slim."))
    }
    assert lost == {}


def test_each_explanation_says_what_it_was_and_what_to_use():
    texts = names.MISSING.values()
    assert [text for text in texts if not re.fullmatch("it .+; use .+", text)] == []


def test_each_name_that_an_explanation_advises_exists():
    advised = {
        name
        for text in names.MISSING.values()
        for name in re.findall(r"\btf\.[\w.]*\w", text.partition("; use ")[2])
    }
    missing = []
    for name in sorted(advised):
        value = facade.TENSORFLOW
        try:
            for part in name.split(".")[1:]:
                value = getattr(value, part)
        except AttributeError:
            missing.append(name)
    assert missing == []


def _resolved(target):
    """Return what a target of the table names; skip if its package is optional."""
    module_name, _, path = target.partition(":")
    if module_name.startswith("tf_slim"):
        pytest.importorskip("tf_slim")
    value = importlib.import_module(module_name)
    for part in path.split(".") if path else ():
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", names.AVAILABLE)
def test_each_name_leads_to_an_object(name):
    assert _resolved(names.AVAILABLE[name]) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data.map_and_batch", tf.compat.v1.data.experimental.map_and_batch),
        ("rnn.MultiRNNCell", tf.compat.v1.nn.rnn_cell.MultiRNNCell),
        ("summary.all_summary_ops", tf.compat.v1.summary.all_v2_summary_ops),
        ("tpu.TPUEstimator", tf.compat.v1.estimator.tpu.TPUEstimator),
    ],
)
def test_a_name_is_what_tensorflow_has_for_it(name, value):
    assert _resolved(names.AVAILABLE[name]) is value


def test_tables_take_the_names_of_contrib():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        words = tf.constant(["a", "b"])
        look_up = _resolved(names.AVAILABLE["lookup.index_table_from_tensor"])
        name_of = _resolved(names.AVAILABLE["lookup.index_to_string_table_from_tensor"])
        places = look_up(mapping=words, num_oov_buckets=1).lookup(
            tf.constant(["b", "z"])
        )
        strings = name_of(mapping=words).lookup(tf.constant([0, 5], tf.int64))
        initializer = _resolved(names.AVAILABLE["lookup.KeyValueTensorInitializer"])
        table = _resolved(names.AVAILABLE["lookup.HashTable"])(
            initializer(words, tf.constant([3, 4])), -1
        )
        session.run(tf.compat.v1.tables_initializer())
        table.init.run()
        assert session.run(places).tolist() == [1, 2]
        assert session.run(strings).tolist() == [b"a", b"UNK"]
        assert session.run(table.lookup(words)).tolist() == [3, 4]
