"""Random numbers that a loop of steps draws, and other calls that draw them too.

The loop has ops of its own, and so random generators of its own (see `graph.ops`).
The program's generators do not advance while the loop runs. Another call that draws
from them gets the numbers that the first step has had.
"""

import logging
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator_runtime.compat import internals
from estimator_runtime.loop.graph import ops
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph
from estimator_runtime.loop.plan import MAX_PLANS
from estimator_runtime.loop.run_length import RunLength

_logger = logging.getLogger(__name__)


def check_end(
    graph: tf.Graph, hooks: Iterable[tf.compat.v1.train.SessionRunHook]
) -> None:
    """Raise CannotFuse if a hook draws random numbers when the session ends."""
    for hook, fetches in _at_end(hooks):
        drawn = ops.with_own_randomness(graph, ops_of(graph, fetches).values())
        if drawn:
            raise CannotFuse(
                f"is run beside a {type(hook).__name__} that draws random numbers, "
                f"{drawn[0]!r}, at the end"
            )


class Randomness:
    """Logs, once, that another call draws the random numbers that the loop has drawn.

    Args:
        graph: The graph of the session.
        step: The part of the graph that the loop runs.
        run_length: The length of runs, which the log names.
    """

    def __init__(self, graph: tf.Graph, step: Subgraph, run_length: RunLength) -> None:
        self._graph = graph
        self._names = ops.with_own_randomness(graph, step.ops.values())
        self._run_length = run_length
        self._known: dict[Hashable, object] = {}  # other requests, by key

    def drawn_by(self, fetches: object) -> str | None:
        """Return the name of an op that draws both in a step and for `fetches`."""
        if not self._names:
            return None
        both = ops_of(self._graph, fetches).keys() & set(self._names)
        return min(both, default=None)

    def tell(self, fetches: object, key: Hashable) -> None:
        """Record another call of the session, and log it if it draws the same numbers.

        Args:
            fetches: What the call asks for.
            key: Equal for equal requests (see `plan.structure`).
        """
        if not self._names or key in self._known or len(self._known) == MAX_PLANS:
            return
        self._known[key] = fetches  # the key relies on their identity
        both = self.drawn_by(fetches)
        if both is not None:
            self._names = []
            _logger.warning(
                "steps_per_run=%s: random numbers, and so losses, are not those of "
                "steps_per_run=1, because %r is run by different calls of the session",
                self._run_length,
                both,
            )


def _at_end(
    hooks: Iterable[tf.compat.v1.train.SessionRunHook],
) -> Iterator[tuple[tf.compat.v1.train.SessionRunHook, Any]]:
    """Yield the hooks that run the session when it ends, with what they fetch then."""
    for hook in hooks:
        logs = isinstance(hook, tf.compat.v1.train.LoggingTensorHook)
        if logs and hook._log_at_end:
            yield hook, hook._current_tensors
        final = isinstance(hook, tf.compat.v1.train.FinalOpsHook)
        if final and hook._final_ops is not None:
            yield hook, hook._final_ops


def ops_of(graph: tf.Graph, fetches: object) -> dict[str, tf.Operation]:
    """Return the ops that a call of the session runs, by name."""
    asked = internals.FetchHandler(graph, fetches, {})
    return Subgraph(graph, [*(t.op for t in asked.fetches()), *asked.targets()]).ops
