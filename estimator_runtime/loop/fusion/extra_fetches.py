"""Extra fetches: what hooks ask for beyond a step, such as summaries.

With single steps, extra fetches are computed in the same run as the step. With fused
steps, they are computed after the loop, from the values that the last step left. There
is one exception: variables that the step changes are read before the last step, which
is when the hooks of a single step read them. They are read after it only if the
program makes the read wait for some op of the step.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph


class ExtraFetches:
    """The ops outside the step that hooks ask for, or that such ops need.

    Args:
        step: The part of the graph that is the step.
        wanted: Tensors and ops that hooks ask for.

    Attributes:
        from_step: Tensors of the step that are needed, by name.
        waiting: Names of those of `wanted` that need the results of `read`.

    Raises:
        CannotFuse: If an op of the step would have to run before the step, or if an op
            outside it cannot be copied.
    """

    def __init__(
        self, step: Subgraph, wanted: Iterable[tf.Tensor | tf.Operation]
    ) -> None:
        self._wanted = {each.name: each for each in wanted}
        operations = {name: _op(each) for name, each in self._wanted.items()}
        everything = Subgraph(step.graph, operations.values(), without=step.ops)
        everything.check_movable()
        changed = step.changed_handles()
        reads = [
            op
            for op in everything.ops.values()
            if any(tensor.name in changed for tensor in op.inputs)
        ]
        # The reads that can run before the step, with the ops that they need.
        parts = [Subgraph(step.graph, [op], without=step.ops) for op in reads]
        first = {
            name: op
            for part in parts
            if not part.inputs and not part.waits_for(step)
            for name, op in part.ops.items()
        }
        self._before = Subgraph(step.graph, first.values())
        inside = sorted(step.ops.keys() & self._before.ops.keys())
        if inside:  # the op would run twice
            raise CannotFuse(f"has {inside[0]!r}, which hooks ask for before it")
        self._after = Subgraph(
            step.graph, operations.values(), without={**step.ops, **first}
        )
        self._waiting_for_step = [
            op
            for op in self._after.ops.values()
            if any(before.name in step.ops for before in op.control_inputs)
        ]
        used = {**self._wanted, **everything.inputs, **self._after.inputs}
        self._used_before = [
            each for n, each in used.items() if _op(each).name in first
        ]
        self.from_step = {
            name: each
            for name, each in used.items()
            if _op(each).name in step.ops and isinstance(each, tf.Tensor)
        }
        self.waiting = {
            name
            for name, op in operations.items()
            if not first.keys().isdisjoint(Subgraph(step.graph, [op], step.ops).ops)
        }

    def read(self) -> dict[str, Any]:
        """Add the ops that run before the last step.

        Returns:
            Their results, tensors and ops, by the name of the original. Empty if
            everything can be computed after the last step.
        """
        return _add(self._before, self._before.handles, self._used_before, "before")

    def compute(
        self, values: Mapping[str, tf.Tensor], done: tf.Operation
    ) -> dict[str, Any]:
        """Add the ops that run after the last step.

        Args:
            values: Tensors by the name of the one that they replace: the values that
                the last step left, and the results of `read`.
            done: The op that ends the last step.

        Returns:
            Their results, tensors and ops, by the name of the original.
        """
        with tf.control_dependencies([done]):
            # So that variables are read after the step has changed them.
            handles = {n: tf.identity(t) for n, t in self._after.handles.items()}
        for handle in handles.values():
            ops.mark(handle.op)
        inputs = {name: values[name] for name in self._after.inputs}
        wanted = [e for e in self._wanted.values() if _op(e).name in self._after.ops]
        ordered = self._waiting_for_step
        found = _add(self._after, {**handles, **inputs}, [*wanted, *ordered], "after")
        for op in ordered:
            found[op.name]._add_control_input(done)
        return found


def _op(fetched: tf.Tensor | tf.Operation) -> tf.Operation:
    """Return the op of a tensor, or an op itself."""
    return fetched.op if isinstance(fetched, tf.Tensor) else fetched


def _add(
    part: Subgraph,
    input_map: Mapping[str, tf.Tensor],
    wanted: Sequence[tf.Tensor | tf.Operation],
    scope: str,
) -> dict[str, Any]:
    """Import a part of a graph into the default graph.

    Returns:
        The copies of `wanted`, by the name of the original.
    """
    found = tf.graph_util.import_graph_def(
        part.graph_def(),
        input_map=input_map,
        return_elements=[each.name for each in wanted],
        name=scope,
    )
    return {each.name: new for each, new in zip(wanted, found, strict=True)}
