"""`tf.contrib.layers.embed_sequence` and `embedding_lookup_unique`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError

__all__ = ["embed_sequence", "embedding_lookup_unique"]

tf1 = tf.compat.v1


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: bool | None = None,
) -> Any:
    """Return a row of the variable "embeddings" for each id.

    Args:
        ids: Integers [batch, time].
        vocab_size: Number of rows; may be None if the variable is reused.
        embed_dim: Size of a row; may be None if the variable is reused.
        unique: Whether to look each different id up only once.
        initializer: Initializer of the variable; None for the scope's.
        regularizer: Regularizer of the variable.
        trainable: Whether to train the variable.
        scope: Name of the scope; None for "EmbedSequence".
        reuse: Whether to use an existing variable.

    Returns:
        A tensor [batch, time, embed_dim].

    Raises:
        ConfigError: (a ValueError) If a size is missing.
    """
    if not reuse and (vocab_size is None or embed_dim is None):
        raise ConfigError(
            f"embed_sequence: vocab_size is {vocab_size} and embed_dim {embed_dim}; "
            "give both, or reuse a variable"
        )
    with tf1.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        embeddings = tf1.get_variable(
            "embeddings",
            None if vocab_size is None else [vocab_size, embed_dim],
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=[
                tf1.GraphKeys.GLOBAL_VARIABLES,
                tf1.GraphKeys.MODEL_VARIABLES,
            ],
        )
        look_up = embedding_lookup_unique if unique else tf1.nn.embedding_lookup
        return look_up(embeddings, ids)


def embedding_lookup_unique(
    params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None
) -> Any:
    """Return what `tf.nn.embedding_lookup` does, and look up each id only once.

    Args:
        params: The embeddings.
        ids: Integers of any shape.
        partition_strategy: See `tf.nn.embedding_lookup`.
        name: Name of the op.
    """
    with tf1.name_scope(name, "EmbeddingLookupUnique", [params, ids]):
        ids = tf.convert_to_tensor(ids)
        different, places = tf.unique(tf.reshape(ids, [-1]))
        rows = tf1.nn.embedding_lookup(params, different, partition_strategy)
        found = tf.gather(rows, places)
        shape = tf.concat([tf.shape(ids), tf.shape(rows)[1:]], 0)
        result = tf.reshape(found, shape)
        result.set_shape(ids.shape.concatenate(rows.shape[1:]))
        return result
