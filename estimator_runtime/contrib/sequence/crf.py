"""`tf.contrib.crf`: linear-chain conditional random fields.

The score of a sequence of tags is the sum of the unary scores of its tags and of the
transition scores of its pairs of neighbours. Its probability is the exponential of the
score, divided by the sum of that over all sequences of tags.

Shapes: `inputs` is [batch, time, tags], `sequence_lengths` is [batch],
`transition_params` is [tags, tags], from row to column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_multitag_sequence_score",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]

tf1 = tf.compat.v1


def crf_log_likelihood(
    inputs: Any,
    tag_indices: Any,
    sequence_lengths: Any,
    transition_params: Any = None,
) -> tuple[Any, Any]:
    """Return the logarithm of the probability of tags, and the transition scores.

    Args:
        inputs: Unary scores.
        tag_indices: The tags, [batch, time].
        sequence_lengths: Numbers of tags that count.
        transition_params: Transition scores; None for a new variable "transitions".

    Returns:
        A tensor [batch], and `transition_params`.
    """
    inputs = tf.convert_to_tensor(inputs)
    if transition_params is None:
        count = tf.compat.dimension_value(inputs.shape[2])
        transition_params = tf1.get_variable("transitions", [count, count])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    norm = crf_log_norm(inputs, sequence_lengths, transition_params)
    return score - norm, transition_params


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """Return the score of one sequence of tags for each example, [batch].

    A sequence of length 0 has the score 0.
    """
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """Return the sum of the unary scores of the tags, [batch]."""
    inputs = tf.convert_to_tensor(inputs)
    tags = tf.cast(tag_indices, tf.int32)
    scores = tf.gather(inputs, tags, axis=2, batch_dims=2)
    return tf.reduce_sum(scores * _mask(sequence_lengths, scores), 1)


def crf_binary_score(
    tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """Return the sum of the transition scores of neighbouring tags, [batch]."""
    tags = tf.cast(tag_indices, tf.int32)
    transitions = tf.convert_to_tensor(transition_params)
    pairs = tf.stack([tags[:, :-1], tags[:, 1:]], axis=2)
    scores = tf.gather_nd(transitions, pairs)
    lengths = tf.cast(sequence_lengths, tf.int32) - 1
    return tf.reduce_sum(scores * _mask(lengths, scores), 1)


def crf_multitag_sequence_score(
    inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """Return the logarithm of the summed exponentials of several sequences' scores.

    Args:
        inputs: Unary scores.
        tag_bitmap: Which tags a sequence may have, bool [batch, time, tags].
        sequence_lengths: Numbers of tags that count.
        transition_params: Transition scores.

    Returns:
        A tensor [batch]; 0 for sequences of length 0.
    """
    inputs = tf.convert_to_tensor(inputs)
    excluded = tf.fill(tf.shape(inputs), tf.constant(-np.inf, inputs.dtype))
    allowed = tf.where(tf.cast(tag_bitmap, tf.bool), inputs, excluded)
    return crf_log_norm(allowed, sequence_lengths, transition_params)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the logarithm of the summed exponentials of all sequences' scores.

    Returns:
        A tensor [batch]; 0 for sequences of length 0.
    """
    inputs = tf.convert_to_tensor(inputs)
    transitions = tf.convert_to_tensor(transition_params)

    def step(alphas: Any, scores: Any) -> Any:
        # [batch, from, to], summed over the tags that the step comes from.
        paths = alphas[:, :, tf.newaxis] + transitions
        return scores + tf.reduce_logsumexp(paths, 1)

    (last, _) = _over_time(step, inputs, sequence_lengths)
    norm = tf.reduce_logsumexp(last, 1)
    return tf.where(tf.equal(sequence_lengths, 0), tf.zeros_like(norm), norm)


def crf_decode(
    potentials: Any, transition_params: Any, sequence_length: Any
) -> tuple[Any, Any]:
    """Return the sequences of tags with the highest scores, and their scores.

    Args:
        potentials: Unary scores.
        transition_params: Transition scores.
        sequence_length: Numbers of tags that count.

    Returns:
        The tags, int32 [batch, time], which are 0 past the end of a sequence, and the
        scores, [batch], which are 0 for a sequence of length 0.
    """
    inputs = tf.convert_to_tensor(potentials)
    transitions = tf.convert_to_tensor(transition_params)
    lengths = tf.cast(sequence_length, tf.int32)

    def step(best: Any, scores: Any) -> Any:
        return scores + tf.reduce_max(best[:, :, tf.newaxis] + transitions, 1)

    last, states = _over_time(step, inputs, lengths)
    # From the end of each sequence back: the tag before a tag is the one from which the
    # best path leads to it.
    steps = tf.range(tf.shape(states)[0])
    final = tf.argmax(last, 1, output_type=tf.int32)

    def back(tag: Any, each: Any) -> Any:
        best, index = each
        into = tf.gather(tf.transpose(transitions), tag)
        previous = tf.argmax(best + into, 1, output_type=tf.int32)
        return tf.where(index + 1 < lengths, previous, tag)

    tags = tf1.scan(back, [states, steps], initializer=final, reverse=True)
    tags = tf.transpose(tags)
    mask = tf.sequence_mask(lengths, tf.shape(inputs)[1], dtype=tf.int32)
    score = tf.reduce_max(last, 1)
    score = tf.where(tf.equal(lengths, 0), tf.zeros_like(score), score)
    return tags * mask, score


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], float]:
    """Return the sequence of tags with the highest score, and the score, by numpy.

    Args:
        score: Unary scores of one sequence, array [time, tags].
        transition_params: Transition scores, array [tags, tags].
    """
    score, transitions = np.asarray(score), np.asarray(transition_params)
    best = score[0]
    origins = []
    for unary in score[1:]:
        paths = best[:, np.newaxis] + transitions
        origins.append(paths.argmax(0))
        best = unary + paths.max(0)
    tags = [int(best.argmax())]
    for origin in reversed(origins):
        tags.append(int(origin[tags[-1]]))
    return tags[::-1], best.max()


def _over_time(step: Any, inputs: Any, sequence_lengths: Any) -> tuple[Any, Any]:
    """Apply a step to the scores of one time after the other, to each sequence's end.

    Returns:
        The state after the end of each sequence, [batch, tags], and the states after
        each time, [time, batch, tags].
    """
    lengths = tf.cast(sequence_lengths, tf.int32)
    times = tf.transpose(inputs, [1, 0, 2])

    def advance(state: Any, each: Any) -> Any:
        scores, index = each
        is_first = tf.fill(tf.shape(scores), tf.equal(index, 0))
        is_inside = tf.broadcast_to((index < lengths)[:, tf.newaxis], tf.shape(scores))
        new = tf.where(is_first, scores, step(state, scores))
        return tf.where(tf.logical_or(is_first, is_inside), new, state)

    # Over all times: a loop over none, of a batch of an unknown size, would fail.
    indices = tf.range(tf.shape(times)[0])
    first = tf.zeros_like(times[0])
    states = tf1.scan(advance, [times, indices], initializer=first)
    return states[-1], states


def _mask(lengths: Any, like: Any) -> Any:
    """Return 1 inside sequences and 0 past their ends, [batch, time]."""
    lengths = tf.cast(lengths, tf.int32)
    return tf.sequence_mask(lengths, tf.shape(like)[1], dtype=like.dtype)
