"""The tensors that an input_fn returns, and their structure.

The tensors belong to the graph of one call. Each batch of them is fed to a graph that
is kept, at placeholders of the same types and static shapes.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.estimator.reuse.in_memory import Column
from estimator_runtime.tf_internals import graphs

tf1 = tf.compat.v1
_MAPPINGS = (dict, collections.OrderedDict)
_COMPOSITES = (tf.SparseTensor, tf.RaggedTensor)
_UNFEEDABLE = (tf.resource, tf.variant)


class CannotReuse(Exception):
    """A call that builds its own graph; the message completes "because ..."."""


def first_line(error: BaseException) -> str:
    """Return the class and the first line of an error."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


class Inputs:
    """The features and labels of one call.

    Args:
        graph: The graph in which input_fn was called; None if it was not.
        features: What it returned, in any nesting of dicts, lists and tuples.
        labels: Likewise, or None.

    Attributes:
        placeholders: What is fed in their place, once `receive` has been called.
        tensors: The tensors of a batch, each once; columns of inputs in memory.
        key: Equal for inputs to which a model_fn responds with the same graph.

    Raises:
        CannotReuse: If a batch cannot be fed to another graph.
    """

    def __init__(self, graph: tf.Graph | None, features: Any, labels: Any) -> None:
        self._graph: Any = graph
        self._places: dict[int, int] = {}
        self._values = (features, labels)
        self.tensors: list[Any] = []
        self.placeholders: list[tf.Tensor] = []
        # How many ops of the graph have drawn a seed. Ops of a model_fn that has no
        # seed of its own for them continue this count.
        self._seeds_drawn = 0 if graph is None else graphs.seeds_drawn(graph)
        self.key: Hashable = described(self._values, self._leaf), self._seeds_drawn
        if not self.tensors:
            raise CannotReuse("input_fn returns no tensor")

    def receive(self) -> tuple[Any, Any]:
        """Add placeholders for a batch to the default graph, as its only inputs.

        Returns:
            Features and labels that consist of the values of the placeholders.
        """
        graphs.set_seeds_drawn(tf1.get_default_graph(), self._seeds_drawn)
        self.placeholders = [
            tf1.placeholder(t.dtype.base_dtype, t.shape) for t in self.tensors
        ]
        # A session does not fetch what is fed, as predictions may ask for.
        values = [tf.identity(each) for each in self.placeholders]
        leaves = tf.nest.flatten(self._values, expand_composites=True)
        features, labels = tf.nest.pack_sequence_as(
            self._values,
            [None if e is None else values[self._places[id(e)]] for e in leaves],
            expand_composites=True,
        )
        return features, labels

    def _leaf(self, value: Any) -> Hashable:
        """Return the part of the key for a tensor or a column, and collect it."""
        if isinstance(value, tf.Tensor):
            return self._tensor(value)
        if isinstance(value, Column):
            return self._placed(value)
        kind = type(value).__name__
        raise CannotReuse(f"input_fn returns a {kind}, which cannot be fed")

    def _tensor(self, tensor: Any) -> Hashable:
        graph = getattr(tensor, "graph", None)
        if graph is None or graph is not self._graph:
            raise CannotReuse("input_fn returns a tensor of another graph")
        if tensor.dtype in _UNFEEDABLE or not graph.is_fetchable(tensor):
            raise CannotReuse(f"input_fn returns {tensor.name!r}, which cannot be fed")
        if tf.get_static_value(tensor) is not None:
            raise CannotReuse(
                f"input_fn returns the constant {tensor.name!r}, whose value model_fn "
                "may look at"
            )
        return self._placed(tensor)

    def _placed(self, tensor: Any) -> Hashable:
        # model_fn can tell whether two features are one tensor.
        place = self._places.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)
        return place, tensor.dtype.base_dtype, tensor.shape


def described(value: Any, of_leaf: Callable[[Any], Hashable]) -> Hashable:
    """Return a key for a nesting of dicts, lists and tuples.

    Args:
        value: The nesting.
        of_leaf: Returns the key of anything else, such as a tensor, and of the parts of
            a sparse or ragged tensor.
    """
    kind = type(value)
    if value is None:
        return None
    if kind in _MAPPINGS:
        # model_fn may make variables in the order of the features.
        return kind, tuple((n, described(v, of_leaf)) for n, v in value.items())
    if _is_sequence(kind):
        return kind, tuple(described(each, of_leaf) for each in value)
    if isinstance(value, _COMPOSITES):
        parts = tf.nest.flatten(value, expand_composites=True)
        return tf.type_spec_from_value(value), tuple(map(of_leaf, parts))
    return of_leaf(value)


def _is_sequence(kind: type) -> bool:
    return kind in (list, tuple) or (
        issubclass(kind, tuple) and hasattr(kind, "_fields")
    )


def to_feed(value: Any) -> Any:
    """Return a fetched value as an array, which a callable of a session takes."""
    if isinstance(value, (bytes, str)):
        return np.array(value, dtype=object)  # numpy's own type drops zeros at the end
    return np.asarray(value)
