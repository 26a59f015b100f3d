"""Conditional random fields agree with a sum over all sequences of tags."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from estimator_runtime.contrib.sequence import crf

tf1 = tf.compat.v1
_RANDOM = np.random.RandomState(7)
_TIME, _TAGS = 4, 3
_LENGTHS = np.array([4, 2, 1, 0, 3])
_INPUTS = _RANDOM.normal(size=(len(_LENGTHS), _TIME, _TAGS)).astype(np.float32)
_TRANSITIONS = _RANDOM.normal(size=(_TAGS, _TAGS)).astype(np.float32)
_GIVEN = _RANDOM.randint(0, _TAGS, size=(len(_LENGTHS), _TIME))
_ALLOWED = _RANDOM.uniform(size=_INPUTS.shape) < 0.7
_ALLOWED[:, :, 0] = True


def _run(function):
    with tf1.Graph().as_default(), tf1.Session() as session:
        fetches = function()
        session.run(tf1.global_variables_initializer())
        return session.run(fetches)


def _score(example, tags):
    unary = sum(_INPUTS[example, time, tag] for time, tag in enumerate(tags))
    return unary + sum(_TRANSITIONS[pair] for pair in itertools.pairwise(tags))


def _scores(example):
    """Return the score of each sequence of tags that an example can have."""
    sequences = itertools.product(range(_TAGS), repeat=_LENGTHS[example])
    return {tags: _score(example, tags) for tags in sequences}


_EXAMPLES = range(len(_LENGTHS))


def test_the_norm_sums_over_all_sequences():
    norm = _run(lambda: crf.crf_log_norm(_INPUTS, _LENGTHS, _TRANSITIONS))
    expected = [np.log(sum(np.exp(s) for s in _scores(i).values())) for i in _EXAMPLES]
    np.testing.assert_allclose(norm, expected, rtol=1e-5, atol=1e-6)


def test_the_log_likelihood_is_that_of_the_given_tags():
    likelihood, transitions = _run(
        lambda: crf.crf_log_likelihood(
            _INPUTS, _GIVEN, _LENGTHS, tf1.constant(_TRANSITIONS)
        )
    )
    expected = [
        _score(i, _GIVEN[i, :length])
        - np.log(sum(np.exp(s) for s in _scores(i).values()))
        for i, length in enumerate(_LENGTHS)
    ]
    np.testing.assert_allclose(likelihood, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(transitions, _TRANSITIONS)


def test_the_multitag_score_sums_over_the_sequences_that_are_allowed():
    score = _run(
        lambda: crf.crf_multitag_sequence_score(
            _INPUTS, _ALLOWED, _LENGTHS, _TRANSITIONS
        )
    )
    expected = [
        np.log(
            sum(
                np.exp(value)
                for tags, value in _scores(i).items()
                if all(_ALLOWED[i, time, tag] for time, tag in enumerate(tags))
            )
        )
        for i in _EXAMPLES
    ]
    np.testing.assert_allclose(score, expected, rtol=1e-5, atol=1e-6)


def test_decoding_finds_the_best_sequence():
    tags, score = _run(lambda: crf.crf_decode(_INPUTS, _TRANSITIONS, _LENGTHS))
    assert tags.dtype == np.int32
    for example, length in enumerate(_LENGTHS):
        scores = _scores(example)
        best = max(scores, key=scores.get)
        assert tags[example].tolist() == [*best, *[0] * (_TIME - length)]
        assert score[example] == pytest.approx(scores[best], abs=1e-5)


def test_decoding_by_numpy_finds_the_best_sequence():
    scores = _scores(0)
    best = max(scores, key=scores.get)
    tags, score = crf.viterbi_decode(_INPUTS[0], _TRANSITIONS)
    assert tags == list(best)
    assert score == pytest.approx(scores[best])


def test_sequences_of_one_tag_have_no_transitions():
    inputs = _INPUTS[:, :1]
    ones = np.minimum(_LENGTHS, 1)

    def fetches():
        likelihood, _ = crf.crf_log_likelihood(
            inputs, _GIVEN[:, :1], ones, tf1.constant(_TRANSITIONS)
        )
        return likelihood, *crf.crf_decode(inputs, _TRANSITIONS, ones)

    likelihood, tags, score = _run(fetches)
    for i, length in enumerate(ones):
        unary = inputs[i, 0]
        expected = unary[_GIVEN[i, 0]] - np.log(np.exp(unary).sum()) if length else 0
        assert likelihood[i] == pytest.approx(expected, abs=1e-5)
        assert tags[i].tolist() == [unary.argmax() if length else 0]
        assert score[i] == pytest.approx(unary.max() if length else 0)


def test_the_gradient_is_the_tag_minus_its_probability():
    def fetches():
        inputs = tf1.constant(_INPUTS)
        likelihood, _ = crf.crf_log_likelihood(
            inputs, _GIVEN, _LENGTHS, tf1.constant(_TRANSITIONS)
        )
        return tf1.gradients(likelihood, inputs)[0]

    gradient = _run(fetches)
    expected = np.zeros_like(_INPUTS)
    for i, length in enumerate(_LENGTHS):
        scores = _scores(i)
        total = sum(np.exp(s) for s in scores.values())
        for tags, score in scores.items():
            for time, tag in enumerate(tags):
                expected[i, time, tag] -= np.exp(score) / total
        for time in range(length):
            expected[i, time, _GIVEN[i, time]] += 1
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_transitions_that_are_not_given_are_a_variable():
    def names():
        with tf1.variable_scope("loss"):
            crf.crf_log_likelihood(tf1.constant(_INPUTS), _GIVEN, _LENGTHS)
        return [tf1.constant(each.name) for each in tf1.trainable_variables()]

    assert _run(names) == [b"loss/transitions:0"]


@pytest.mark.parametrize("time", [1, _TIME])
@pytest.mark.parametrize("is_v2", [False, True])
def test_batches_of_any_size_and_time_are_scored_and_decoded(time, is_v2):
    was_v2 = tf1.control_flow_v2_enabled()
    (tf1.enable_control_flow_v2 if is_v2 else tf1.disable_control_flow_v2)()
    try:
        with tf1.Graph().as_default(), tf1.Session() as session:
            inputs = tf1.placeholder(tf1.float32, [None, None, _TAGS])
            tags = tf1.placeholder(tf1.int32, [None, None])
            lengths = tf1.placeholder(tf1.int32, [None])
            likelihood, _ = crf.crf_log_likelihood(
                inputs, tags, lengths, tf1.constant(_TRANSITIONS)
            )
            gradient = tf1.gradients(likelihood, inputs)[0]
            best, score = crf.crf_decode(inputs, _TRANSITIONS, lengths)
            ends = np.minimum(_LENGTHS, time)
            feeds = {inputs: _INPUTS[:, :time], tags: _GIVEN[:, :time], lengths: ends}
            *found, slope = session.run([likelihood, best, score, gradient], feeds)
    finally:
        (tf1.enable_control_flow_v2 if was_v2 else tf1.disable_control_flow_v2)()
    assert np.isfinite(slope).all()
    for i, end in enumerate(ends):
        sequences = itertools.product(range(_TAGS), repeat=end)
        scores = {each: _score(i, each) for each in sequences}
        norm = np.log(sum(np.exp(s) for s in scores.values()))
        expected = scores[tuple(_GIVEN[i, :end])] - norm
        assert found[0][i] == pytest.approx(expected, abs=1e-4)
        top = max(scores, key=scores.get)
        assert found[1][i].tolist() == [*top, *[0] * (time - end)]
        assert found[2][i] == pytest.approx(scores[top], abs=1e-4)
