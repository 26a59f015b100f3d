"""The loss of sequences is the average of the cross entropies, by the weights."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.contrib.sequence import embedding, seq2seq
from estimator_runtime.errors import ConfigError

tf1 = tf.compat.v1
_RANDOM = np.random.RandomState(2)
_LOGITS = _RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
_TARGETS = _RANDOM.randint(0, 5, size=(3, 4))
_WEIGHTS = np.array([[1, 2, 0, 0], [1, 1, 1, 0], [0.5, 0, 0, 0]], np.float32)
_PROBABILITIES = np.exp(_LOGITS) / np.exp(_LOGITS).sum(2, keepdims=True)
_LOSSES = -_WEIGHTS * np.log(
    np.take_along_axis(_PROBABILITIES, _TARGETS[:, :, np.newaxis], 2)[:, :, 0]
)


def _loss(**kwargs):
    with tf1.Graph().as_default(), tf1.Session() as session:
        loss = seq2seq.sequence_loss(
            tf1.constant(_LOGITS), tf1.constant(_TARGETS), _WEIGHTS, **kwargs
        )
        return session.run(loss)


def _chosen(time, batch, sum_time=False, sum_batch=False):
    return {
        "average_across_timesteps": time,
        "average_across_batch": batch,
        "sum_over_timesteps": sum_time,
        "sum_over_batch": sum_batch,
    }


def _ratio(values, counts, axis=None):
    values, counts = values.sum(axis), counts.sum(axis)
    return np.where(counts > 0, values / np.maximum(counts, 1e-9), 0)


_COUNTS = (_WEIGHTS != 0).astype(np.float32)


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, _ratio(_LOSSES, _WEIGHTS)),
        (_chosen(True, False), _ratio(_LOSSES, _WEIGHTS, 1)),
        (_chosen(False, True), _ratio(_LOSSES, _WEIGHTS, 0)),
        (_chosen(False, False), _LOSSES),
        (_chosen(False, False, True, True), _ratio(_LOSSES, _COUNTS)),
        (_chosen(False, False, True, False), _ratio(_LOSSES, _COUNTS, 1)),
        (_chosen(False, False, False, True), _ratio(_LOSSES, _COUNTS, 0)),
        (_chosen(False, True, True, False), _ratio(_LOSSES, _WEIGHTS, 0)),
    ],
)
def test_each_reduction_divides_by_its_weights(kwargs, expected):
    np.testing.assert_allclose(_loss(**kwargs), expected, rtol=1e-5)


def test_a_loss_function_gets_flat_labels_and_logits():
    loss = _loss(softmax_loss_function=lambda labels, logits: tf.cast(labels, "float"))
    assert loss == pytest.approx((_TARGETS * _WEIGHTS).sum() / _WEIGHTS.sum())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: _loss(sum_over_batch=True), "averaged and summed"),
        (lambda: seq2seq.sequence_loss([[1.0]], [[1]], [[1.0]]), "logits have .* 3"),
    ],
)
def test_what_cannot_be_reduced_is_refused(call, text):
    with pytest.raises(ConfigError, match=text):
        call()


@pytest.mark.parametrize("unique", [False, True])
def test_sequences_are_embedded(unique):
    ids = np.array([[2, 0, 2], [1, 1, 0]])
    with tf1.Graph().as_default(), tf1.Session() as session:
        rows = embedding.embed_sequence(ids, 3, 2, unique=unique, scope="words")
        again = embedding.embed_sequence(ids, scope="words", reuse=True)
        (table,) = tf1.trainable_variables()
        assert table.op.name == "words/embeddings"
        assert rows.shape.as_list() == [2, 3, 2]
        session.run(tf1.global_variables_initializer())
        values, same, embeddings = session.run([rows, again, table])
    np.testing.assert_array_equal(values, embeddings[ids])
    np.testing.assert_array_equal(same, values)


def test_an_embedding_without_sizes_is_refused():
    with pytest.raises(ConfigError, match="embed_dim None; give both"):
        embedding.embed_sequence([[1]], 3)
