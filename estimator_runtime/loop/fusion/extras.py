"""What hooks ask for beyond a step, such as summaries, computed after a run of steps.

With single steps, it is computed in the same call as the step. After a run of steps,
the program's own ops compute it in a call of their own. What they take from the step is
fed: the values that the last step left. There is one exception. Variables that the step
changes are read before the last step, which is when the hooks of a single step read
them, and their values are fed too. A read that needs values of the step comes after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph
from estimator_runtime.tf_internals import sessions


class Extras:
    """The ops outside a step that some fetches need.

    Args:
        session: The session that runs the steps.
        step: The part of the graph that is the step.
        tensors: Tensors that hooks ask for; those of the step itself are left out.
        operations: Ops that hooks ask for; those of the step itself are left out.

    Attributes:
        from_step: Tensors of the step that are needed, by name.
        reads: Tensors that have to be read before the last step, by name.

    Raises:
        CannotFuse: If the ops cannot run after the step, in another call.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        step: Subgraph,
        tensors: Iterable[tf.Tensor],
        operations: Iterable[tf.Operation],
    ) -> None:
        self._session = session
        self._tensors = [t for t in tensors if t.op.name not in step.ops]
        self._operations = [op for op in operations if op.name not in step.ops]
        roots = [*(tensor.op for tensor in self._tensors), *self._operations]
        part = Subgraph(step.graph, roots, without=step.ops)
        for op in part.ops.values():
            if any(before.name in step.ops for before in op.control_inputs):
                raise CannotFuse(
                    f"is run with {op.name!r}, that hooks ask for and that waits for it"
                )
        self.from_step = part.inputs
        changed = step.changed_handles()
        self.reads = {
            tensor.name: tensor
            for op in part.ops.values()
            if any(tensor.name in changed for tensor in op.inputs)
            and not Subgraph(step.graph, [op], without=step.ops).inputs
            for tensor in op.outputs
        }

    def read(self) -> dict[str, Any]:
        """Return the values of `reads`, by name."""
        return dict(zip(self.reads, self._read(), strict=True))

    def compute(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run the ops, and return the values of the other tensors by name.

        Args:
            values: The values of `from_step` that the last step left, and the result
                of `read`, by name.
        """
        if not (self._fetched or self._operations):
            return {}
        fed = [
            np.asarray(values[name], tensor.dtype.as_numpy_dtype)
            for name, tensor in self._fed.items()
        ]
        return dict(zip(self._fetched, self._compute(*fed), strict=True))

    @property
    def _fed(self) -> dict[str, tf.Tensor]:
        return {**self.from_step, **self.reads}

    @property
    def _fetched(self) -> list[str]:
        return [t.name for t in self._tensors if t.name not in self.reads]

    @functools.cached_property
    def _read(self) -> Callable[..., list[Any]]:
        return sessions.compile_call(self._session, [], list(self.reads))

    @functools.cached_property
    def _compute(self) -> Callable[..., list[Any]]:
        targets = [op.name for op in self._operations]
        return sessions.compile_call(
            self._session, list(self._fed), self._fetched, targets
        )
