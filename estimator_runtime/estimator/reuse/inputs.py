"""The tensors that an input_fn returns, and their structure.

The tensors belong to the graph of one call. Each batch of them is fed to a graph that
is kept, at placeholders of the same types and static shapes.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable, Sequence
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


class Inputs:
    """The features and labels of one call.

    Args:
        graph: The graph in which input_fn was called; None if it was not.
        features: What it returned, in any nesting of dicts, lists and tuples.
        labels: Likewise, or None.

    Attributes:
        tensors: The tensors of a batch, each once; columns of inputs in memory.
        key: Equal for inputs to which a model_fn responds with the same graph.
        seeds_drawn: How many ops of the graph have drawn a seed. Ops of a model_fn that
            has no seed of its own for them continue this count.

    Raises:
        CannotReuse: If a batch cannot be fed to another graph.
    """

    def __init__(self, graph: tf.Graph | None, features: Any, labels: Any) -> None:
        self._graph: Any = graph
        self._places: dict[int, int] = {}
        self._values = (features, labels)
        self.tensors: list[Any] = []
        self.seeds_drawn = 0 if graph is None else graphs.seeds_drawn(graph)
        self.key: Hashable = (
            self._described(features),
            self._described(labels),
            self.seeds_drawn,
        )
        if not self.tensors:
            raise CannotReuse("input_fn returns no tensor")

    def placeholders(self) -> tuple[list[tf.Tensor], Any, Any]:
        """Add placeholders for a batch to the default graph.

        Returns:
            The placeholders, in the order of `tensors`; and features and labels that
            consist of their values.
        """
        fed = [tf1.placeholder(t.dtype.base_dtype, t.shape) for t in self.tensors]
        # A session does not fetch what is fed, as predictions may ask for.
        values = [tf.identity(each) for each in fed]
        features, labels = self._values
        return fed, self._rebuilt(features, values), self._rebuilt(labels, values)

    def _described(self, value: Any) -> Hashable:
        """Return the part of the key for a value, and collect its tensors."""
        kind = type(value)
        if value is None:
            return None
        if kind in _MAPPINGS:
            # model_fn may make variables in the order of the features.
            return kind, tuple((n, self._described(v)) for n, v in value.items())
        if _is_sequence(kind):
            return kind, tuple(self._described(each) for each in value)
        if isinstance(value, _COMPOSITES):
            spec = tf.type_spec_from_value(value)
            return spec, tuple(self._tensor(part) for part in _parts(value))
        if isinstance(value, tf.Tensor):
            return self._tensor(value)
        if isinstance(value, Column):
            return self._placed(value)
        raise CannotReuse(f"input_fn returns a {kind.__name__}, which cannot be fed")

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
        return place, tensor.dtype.base_dtype, static_shape(tensor)

    def _rebuilt(self, value: Any, tensors: Sequence[tf.Tensor]) -> Any:
        """Return a value with other tensors in place of its own."""

        def again(each: Any) -> Any:
            return self._rebuilt(each, tensors)

        kind = type(value)
        if value is None:
            return None
        if kind in _MAPPINGS:
            return kind((name, again(each)) for name, each in value.items())
        if _is_sequence(kind):
            children = map(again, value)
            return kind(*children) if hasattr(kind, "_fields") else kind(children)
        if isinstance(value, _COMPOSITES):
            parts = [again(part) for part in _parts(value)]
            return tf.nest.pack_sequence_as(value, parts, expand_composites=True)
        return tensors[self._places[id(value)]]


def _is_sequence(kind: type) -> bool:
    return kind in (list, tuple) or (
        issubclass(kind, tuple) and hasattr(kind, "_fields")
    )


def _parts(value: Any) -> list[Any]:
    """Return the tensors that a sparse or ragged tensor consists of."""
    return tf.nest.flatten(value, expand_composites=True)


def static_shape(tensor: tf.Tensor | Column) -> tuple[int | None, ...] | None:
    """Return the static shape of a tensor; None if not even its rank is known."""
    shape = tensor.shape
    return None if shape.rank is None else tuple(shape.as_list())


def to_feed(value: Any) -> Any:
    """Return a fetched value as an array, which a callable of a session takes."""
    if isinstance(value, (bytes, str)):
        return np.array(value, dtype=object)  # numpy's own type drops zeros at the end
    return np.asarray(value)
