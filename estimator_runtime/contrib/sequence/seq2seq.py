"""`tf.contrib.seq2seq.sequence_loss`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError

__all__ = ["sequence_loss"]

tf1 = tf.compat.v1


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return the weighted cross entropy of sequences of classes.

    By default it is the average over all: the sum of the weighted losses, divided by
    that of the weights. If one axis is averaged and the other not, or summed, the
    result is the average over that axis only, as in TensorFlow 1.15.

    Args:
        logits: Scores [batch, time, classes].
        targets: Classes [batch, time].
        weights: The weight of each, float [batch, time].
        average_across_timesteps: Whether to average over the time.
        average_across_batch: Whether to average over the batch.
        sum_over_timesteps: Whether to divide by the number of weights other than 0
            along the time, instead of averaging.
        sum_over_batch: The same along the batch.
        softmax_loss_function: A function of (labels, logits), flat, that returns the
            loss of each; None for the sparse softmax cross entropy.
        name: Name of the ops.

    Returns:
        A scalar; [time] if only the batch is reduced, [batch] if only the time is,
        [batch, time] if none is. It is 0 where all weights are 0.

    Raises:
        ConfigError: (a ValueError) If a shape has another rank, or an axis is to be
            averaged and summed.
    """
    logits, targets, weights = map(tf.convert_to_tensor, (logits, targets, weights))
    for argument, value, rank in (
        ("logits", logits, 3),
        ("targets", targets, 2),
        ("weights", weights, 2),
    ):
        if value.shape.rank != rank:
            raise ConfigError(
                f"sequence_loss: {argument} have the shape {value.shape}; give "
                f"{rank} axes: batch, time" + (", classes" if rank == 3 else "")
            )
    if (average_across_timesteps and sum_over_timesteps) or (
        average_across_batch and sum_over_batch
    ):
        raise ConfigError(
            "sequence_loss: an axis is to be averaged and summed; set one of "
            "average_across_... and sum_over_... to False"
        )
    with tf1.name_scope(name, "sequence_loss", [logits, targets, weights]):
        classes = tf.shape(logits)[2]
        loss_function = softmax_loss_function or _cross_entropy
        losses = loss_function(
            labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, classes])
        )
        losses = tf.reshape(losses, tf.shape(targets)) * weights
        averaged = _axes(average_across_batch, average_across_timesteps)
        axes = averaged or _axes(sum_over_batch, sum_over_timesteps)
        if not axes:
            return losses
        counted = (
            weights if averaged else tf.cast(tf.not_equal(weights, 0), losses.dtype)
        )
        total = tf.reduce_sum(losses, axes)
        return tf.math.divide_no_nan(total, tf.reduce_sum(counted, axes))


def _axes(batch: bool, time: bool) -> list[int]:
    """Return the numbers of the axes that are chosen."""
    return [axis for axis, is_chosen in enumerate((batch, time)) if is_chosen]


def _cross_entropy(labels: Any, logits: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
