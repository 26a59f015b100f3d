"""Random numbers that a loop of steps draws, and who else draws them.

The loop has ops, and so generators, of its own (see `kernels`). Another call that draws
from the program's gets the numbers that the first step has had.
"""

import logging

from tensorflow.python.client import session as session_lib
from tensorflow.python.training import basic_session_run_hooks

from estimator_runtime.loop import kernels
from estimator_runtime.loop.part import CannotFuse, Part
from estimator_runtime.loop.plan import MAX_PLANS

_logger = logging.getLogger(__name__)


def check_end(graph, hooks):
    """Refuse hooks that draw random numbers when the session ends.

    Args:
        graph: The graph of the session.
        hooks: Its hooks.

    Raises:
        CannotFuse: If there are any.
    """
    for hook, fetches in _at_end(hooks):
        drawn = kernels.with_own_randomness(graph, ops_of(graph, fetches).values())
        if drawn:
            raise CannotFuse(
                f"is run beside a {type(hook).__name__} that draws random numbers, "
                f"{drawn[0]!r}, at the end"
            )


class Randomness:
    """Says in the log, once, that another call draws what the loop has drawn.

    Args:
        graph: The graph of the session.
        step: `Part` of it that the loop runs.
        run_length: `RunLength` that the log names.
    """

    def __init__(self, graph, step, run_length):
        self._graph = graph
        self._names = kernels.with_own_randomness(graph, step.ops.values())
        self._run_length = run_length
        self._known: dict = {}  # other requests, by key

    def drawn_by(self, fetches: object) -> str | None:
        """Return the name of an op that draws both in a step and for `fetches`."""
        if not self._names:
            return None
        both = ops_of(self._graph, fetches).keys() & set(self._names)
        return min(both, default=None)

    def tell(self, fetches, key):
        """Take note of another call of the session.

        Args:
            fetches: What it asks for.
            key: What tells it from others (see `plan.structure`).
        """
        if not self._names or key in self._known or len(self._known) == MAX_PLANS:
            return
        self._known[key] = fetches  # on whose identity the key relies
        both = self.drawn_by(fetches)
        if both is not None:
            self._names = []
            _logger.warning(
                "steps_per_run=%s: random numbers, and so losses, are not those of "
                "steps_per_run=1, because %r is run by different calls of the session",
                self._run_length,
                both,
            )


def _at_end(hooks):
    """Give the hooks that run the session when it ends, with what they fetch then."""
    for hook in hooks:
        logs = isinstance(hook, basic_session_run_hooks.LoggingTensorHook)
        if logs and hook._log_at_end:
            yield hook, hook._current_tensors
        final = isinstance(hook, basic_session_run_hooks.FinalOpsHook)
        if final and hook._final_ops is not None:
            yield hook, hook._final_ops


def ops_of(graph, fetches):
    """Give the ops that a call of the session runs, by name."""
    asked = session_lib._FetchHandler(graph, fetches, {})
    return Part(graph, [*(t.op for t in asked.fetches()), *asked.targets()]).ops
