"""AutoGraph leaves the layers of canned Estimators as they are, for the same graph."""

import re

import pytest
import tensorflow as tf
from tensorflow.python.autograph.impl import api

import estimator_runtime as er

er.install()
WORD = tf.feature_column.categorical_column_with_hash_bucket("word", 10)
NUMBER = tf.feature_column.numeric_column("number", normalizer_fn=lambda x: 2 * x)
DEEP = [tf.feature_column.embedding_column(WORD, 4), NUMBER]


def deep(package, **options):
    return package.DNNClassifier(
        [8, 4], DEEP, dropout=0.2, batch_norm=True, activation_fn=tf.nn.elu, **options
    )


def linear(package, **options):
    return package.LinearClassifier([WORD, NUMBER], sparse_combiner="mean", **options)


def combined(package, **options):
    return package.DNNLinearCombinedRegressor(
        linear_feature_columns=[WORD, NUMBER],
        dnn_feature_columns=DEEP,
        dnn_hidden_units=[8, 4],
        **options,
    )


def graph_of(estimator, mode):
    """Return the nodes and the functions of a model, with a batch of two rows."""
    with tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(1)
        tf.compat.v1.train.create_global_step()
        features = {
            "word": tf.constant([["a"], ["b"]]),
            "number": tf.constant([[1.0], [2.0]]),
        }
        labels = None if mode == "infer" else tf.constant([[0], [1]])
        estimator._call_model_fn(features, labels, mode, estimator.config)
        definition = graph.as_graph_def(add_shapes=True)
    parts = [*definition.node, *definition.library.function]
    # TensorFlow numbers the branches of a process, not those of a graph.
    texts = [re.sub(r"_(true|false)_\d+", r"_\1", str(part)) for part in parts]
    nodes = len(definition.node)
    return [*texts[:nodes], *sorted(texts[nodes:])]


@pytest.mark.parametrize("mode", ["train", "eval", "infer"])
@pytest.mark.parametrize("make", [deep, linear, combined])
@pytest.mark.parametrize("package", ["tf.estimator", "tf.compat.v1.estimator"])
def test_the_graph_is_that_of_rewritten_layers(
    package, make, mode, monkeypatch, tmp_path
):
    rewritten = []
    convert = api._convert_actual

    def recorded(entity, *arguments):
        rewritten.append(entity)
        return convert(entity, *arguments)

    monkeypatch.setattr(api, "_convert_actual", recorded)
    module = tf.estimator if package == "tf.estimator" else tf.compat.v1.estimator
    config = tf.estimator.RunConfig(str(tmp_path), tf_random_seed=1)
    ours = graph_of(make(module, config=config), mode)
    assert rewritten == []
    monkeypatch.setattr(api, "is_autograph_artifact", lambda entity: False)
    assert graph_of(make(module, config=config), mode) == ours
    assert rewritten


def loss_with_a_branch(labels, logits):
    difference = labels - logits
    if tf.reduce_mean(tf.abs(difference)) > 100.0:
        difference = difference * 0.5
    return difference * difference


def optimizer_with_a_branch():
    rate = 0.01 if tf.compat.v1.train.get_global_step() > 1000 else 0.1
    return tf.compat.v1.train.GradientDescentOptimizer(rate)


def with_own_loss(config):
    head = tf.estimator.RegressionHead(loss_fn=loss_with_a_branch)
    return tf.estimator.DNNEstimator(head, [4], [NUMBER], config=config)


def with_own_optimizer(config):
    return tf.compat.v1.estimator.LinearRegressor(
        [NUMBER], optimizer=optimizer_with_a_branch, config=config
    )


@pytest.mark.parametrize("make", [with_own_loss, with_own_optimizer])
def test_functions_of_the_program_are_rewritten_under_a_strategy(make, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    config = tf.estimator.RunConfig(str(tmp_path), train_distribute=strategy)
    batch = {"number": [[1.0], [2.0]]}, [[0.0], [1.0]]
    estimator = make(config)
    estimator.train(lambda: tf.data.Dataset.from_tensors(batch).repeat(), steps=1)
    assert estimator.get_variable_value("global_step") == 1
