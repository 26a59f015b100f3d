"""What hooks ask for beyond a step: summaries, and other ops of their own.

Single steps compute it in the same run as the step. With fused steps it is computed
after the loop, from the values that the last step left; except that variables which the
step changes are read before the last step, as a single step's hooks find them, unless
the program itself has their read wait for some op of the step.
"""

import tensorflow as tf

from estimator_runtime.loop import writers
from estimator_runtime.loop.part import CannotFuse, Part


class Beyond:
    """The ops that hooks ask for, or that these need, and that are not the step's.

    Args:
        step: `Part` of the graph that is the step.
        wanted: Tensors and ops that hooks ask for.

    Attributes:
        from_step: Tensors of the step that are needed, by name.
        waiting: Names of the wanted that need what `read` gives.

    Raises:
        CannotFuse: If an op of the step would have to be run before the step, or one
            beyond it cannot be copied.
    """

    def __init__(self, step, wanted):
        self._wanted = {each.name: each for each in wanted}
        operations = {name: _op(each) for name, each in self._wanted.items()}
        everything = Part(step.graph, operations.values(), without=step.ops)
        everything.check_movable()
        changed = step.changed_handles()
        reads = [
            op
            for op in everything.ops.values()
            if any(tensor.name in changed for tensor in op.inputs)
        ]
        # Of those, the ones that can be run before the step.
        parts = [Part(step.graph, [op], without=step.ops) for op in reads]
        first = {
            name: op
            for part in parts
            if not part.inputs and not part.waits_for(step)
            for name, op in part.ops.items()
        }
        self._before = Part(step.graph, first.values())
        inside = sorted(step.ops.keys() & self._before.ops.keys())
        if inside:  # it would be run twice
            raise CannotFuse(f"has {inside[0]!r}, which hooks ask for before it")
        self._after = Part(
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
            if not first.keys().isdisjoint(Part(step.graph, [op], step.ops).ops)
        }

    def read(self):
        """Add the ops that run before the last step; give their results by name.

        There are none if everything can be computed after it.
        """
        return _add(self._before, self._before.handles, self._used_before, "before")

    def compute(self, values, done):
        """Add the ops that run after the last step; give their results by name.

        Args:
            values: Tensors by the name of the one that they stand for: what the last
                step left, and what `read` gave.
            done: The op that ends the last step.
        """
        with tf.control_dependencies([done]):
            # So that variables are read when the step has changed them.
            handles = {n: tf.identity(t) for n, t in self._after.handles.items()}
        for handle in handles.values():
            writers.mark(handle.op)
        inputs = {name: values[name] for name in self._after.inputs}
        wanted = [e for e in self._wanted.values() if _op(e).name in self._after.ops]
        ordered = self._waiting_for_step
        found = _add(self._after, {**handles, **inputs}, [*wanted, *ordered], "after")
        for op in ordered:
            found[op.name]._add_control_input(done)
        return found


def _op(fetched):
    return fetched.op if isinstance(fetched, tf.Tensor) else fetched


def _add(part, input_map, wanted, scope):
    """Import a part of a graph; give what stands for `wanted` by name."""
    found = tf.graph_util.import_graph_def(
        part.graph_def(),
        input_map=input_map,
        return_elements=[each.name for each in wanted],
        name=scope,
    )
    return {each.name: new for each, new in zip(wanted, found, strict=True)}
