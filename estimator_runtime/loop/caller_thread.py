"""The choice of the thread that runs a request: the caller's, or one of TensorFlow's.

Passing a request to TensorFlow's pool of threads and waiting for it costs more than the
kernels of a small graph. Each request is run by one of the two for as long as the
session lives, because TensorFlow makes an executor for each. The choice is made from
the graph and the session's configuration before the first run, so it is the same in
each training. The calling thread runs a request if all of this is true:

- The session has one device, the CPU, and its configuration chooses no threads.
- The request has few ops, and none is known to take long: no large tensor, no
  convolution, no loop. The graph does not know the size of a batch, and so not how long
  the ops take. With large batches, the number of ops bounds what is lost on many cores.
- No op waits for another thread, and none calls Python or takes a reference variable.
- No function or branch takes a resource, such as a variable.
- Ops that use what the request changes do so in an order that the graph sets. The
  calling thread would run the others in an order of its own (see `graph.order`).

The one exception to the last rule is the global step, which hooks fetch at every step.
TensorFlow's threads nearly always read it before the step adds to it, but no op waits
for that. So where the calling thread runs the step, hooks get the value from before it,
unless several threads run steps of the session.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.graph import ops, order
from estimator_runtime.loop.graph.subgraph import Subgraph, has_reference
from estimator_runtime.loop.plan import MAX_PLANS
from estimator_runtime.tf_internals import op_kinds, sessions

# Without constants. Wide-and-deep models on a few columns have about 500, ten columns
# with embeddings about 700.
_MOST_OPS = 600
_MOST_ELEMENTS = 2**16  # of a tensor whose shape the graph knows


class CallingThread:
    """Chooses the requests of a session that run on the thread that makes them.

    Args:
        session: A session of this process, once one of the other members is used.
    """

    def __init__(self, session: tf.compat.v1.Session) -> None:
        self._session = session
        # What a request fetches and runs, to whether the calling thread runs it.
        self._chosen: dict[tuple[str, ...], bool] = {}

    @functools.cached_property
    def flush(self) -> DenormalFlush | None:
        """What flushes denormals there; None if no request runs there."""
        devices = [each.device_type for each in self._session.list_devices()]
        if devices != ["CPU"] or _chooses_threads(self._session):
            return None
        return DenormalFlush.of_this_machine()

    @functools.cached_property
    def global_step(self) -> GlobalStep:
        """The global step of the session."""
        return GlobalStep(self._session, self.flush)

    def flush_for(self, fetches: Any) -> DenormalFlush | None:
        """Return `flush` if the calling thread runs a request for `fetches`, or None.

        Args:
            fetches: What the request asks for.
        """
        if self.flush is None:
            return None
        graph, early = self._session.graph, self.global_step.early
        asked = sessions.FetchHandler(graph, fetches, {})
        roots = [t.op for t in asked.fetches() if t.name not in early]
        roots.extend(asked.targets())
        key = tuple(op.name for op in roots)
        if key not in self._chosen:
            if len(self._chosen) == MAX_PLANS:
                self._chosen.clear()
            self._chosen[key] = fits(Subgraph(graph, roots))
        return self.flush if self._chosen[key] else None


def fits(step: Subgraph) -> bool:
    """Return whether the ops of a step may run, and run well, on the calling thread."""
    count = sum(op.type != "Const" for op in step.ops.values())
    if count > _MOST_OPS or not all(map(_is_short, step.ops.values())):
        return False
    return order.find_unordered(step) is None


def _is_short(op: tf.Operation) -> bool:
    """Return whether an op neither takes long nor waits for another thread."""
    kind = op_kinds.of(op.type)
    if has_reference(op) or kind.takes_long:
        return False
    if any((t.shape.num_elements() or 0) > _MOST_ELEMENTS for t in op.outputs):
        return False
    if any(tensor.dtype == tf.resource for tensor in op.outputs):
        return False  # the order of those that use it is unknown
    if not kind.calls_functions:
        return kind.is_asynchronous or not kind.may_wait
    if any(tensor.dtype == tf.resource for tensor in op.inputs):
        return False
    called = [each.kind for each in ops.executed(op.graph, [op])]
    return not any(
        kind.takes_long or (kind.may_wait and not kind.calls_functions)
        for kind in called
    )


def _chooses_threads(session: tf.compat.v1.Session) -> bool:
    """Return whether the user's ConfigProto chooses the threads that run a step."""
    config = sessions.config_of(session)
    return bool(
        config.inter_op_parallelism_threads
        or config.session_inter_op_thread_pool
        or config.use_per_session_threads
    )
