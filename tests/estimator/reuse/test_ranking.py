"""Heads and models of TensorFlow Ranking give the same results from kept graphs."""

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("tensorflow_ranking", reason="TensorFlow Ranking is not installed")

import tensorflow_ranking as tfr

tf1 = tf.compat.v1


def ranking_fn(group_size):
    def score(context_features, group_features, mode, params, config):
        hidden = tf1.layers.dense(tf1.layers.flatten(group_features["x"]), 8, tf.tanh)
        return tf1.layers.dense(hidden, group_size)

    def train(loss):
        optimizer = tf1.train.AdagradOptimizer(0.1)
        return optimizer.minimize(loss, tf1.train.get_global_step())

    ranks = tfr.metrics.RankingMetricKey
    head = tfr.head.create_ranking_head(
        tfr.losses.make_loss_fn(tfr.losses.RankingLossKey.PAIRWISE_LOGISTIC_LOSS),
        eval_metric_fns={
            "ndcg": tfr.metrics.make_ranking_metric_fn(ranks.NDCG, topn=3),
            "mrr": tfr.metrics.make_ranking_metric_fn(ranks.MRR),
        },
        train_op_fn=train,
    )
    return tfr.model.make_groupwise_ranking_fn(
        score, group_size=group_size, transform_fn=None, ranking_head=head
    )


def lists(count=10, seed=0):
    draw = np.random.RandomState(seed)
    x = draw.rand(count, 5, 3).astype("f")
    y = draw.randint(0, 3, (count, 5)).astype("f")
    return lambda: tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(4)


@pytest.mark.parametrize("group_size", [1, 2])
def test_a_groupwise_model_and_its_ranking_head(group_size, pair, refusals):
    pair = pair(ranking_fn(group_size))
    for steps, seed in ((2, 1), (3, 2)):
        pair.train(lists(seed=seed), steps=steps)
        metrics, rows = pair.assert_equal(lists(seed=seed))
        assert 0 < metrics["ndcg"] <= 1
        assert len(rows) == 10
    assert (refusals, sorted(pair.calls)) == ([], ["eval", "infer"])
