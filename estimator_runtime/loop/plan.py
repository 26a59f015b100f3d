"""Fetch plans: what one step runs, compiled once and called many times.

`Session.run` takes its fetches apart at every call. A training loop asks for the same
ones at nearly every step, so each distinct request is compiled once, into a callable
of the session and the recipe that gives every consumer its values back.
"""

import collections
import collections.abc
import functools

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as session_lib
from tensorflow.python.framework import composite_tensor
from tensorflow.python.ops import resource_variable_ops

from estimator_runtime.loop import kernels

_SESSION_RUN = session_lib.BaseSession.run

# What may be fetched and never changes what it stands for.
_LEAVES = (
    tf.Tensor,
    tf.Operation,
    tf.Variable,
    resource_variable_ops.BaseResourceVariable,
    composite_tensor.CompositeTensor,
)
# Other mappings, such as a defaultdict, are made of more than their items.
_MAPPINGS = (dict, collections.OrderedDict)
# Requests that differ at every step would fill memory with plans used once.
MAX_PLANS = 64


class CannotPlan(Exception):
    """A request that only `Session.run` can serve."""


@functools.lru_cache(maxsize=256)  # an instance check costs more than all the rest
def _is_leaf(kind):
    return issubclass(kind, _LEAVES)


def structure(fetches) -> collections.abc.Hashable:
    """Give what two equal requests have in common, as a hashable key.

    Containers count by what they hold, not by which they are: some hooks build a
    fresh dict or list at every step. Leaves count by identity, so whoever keeps the
    key must keep the leaves alive.

    Raises:
        CannotPlan: If a part is of a kind that a plan cannot stand for.
    """
    kind: type = type(fetches)
    if _is_leaf(kind):
        return id(fetches)
    if kind is str:
        return fetches
    if kind is list or issubclass(kind, tuple):
        return (kind, *map(structure, fetches))
    if kind in _MAPPINGS:
        return (kind, *((name, structure(f)) for name, f in fetches.items()))
    raise CannotPlan(f"is asked for a {kind.__name__}")


def are_equal(fetches, others):
    """Tell whether two requests are equal; none is that a plan cannot stand for."""
    try:
        return structure(fetches) == structure(others)
    except CannotPlan:
        return False


def _copied(fetches):
    """Copy the containers, which the program may change, but not the leaves."""
    if type(fetches) in _MAPPINGS:  # no key stands for others: their plan is used once
        return type(fetches)((name, _copied(f)) for name, f in fetches.items())
    if isinstance(fetches, list):
        return [_copied(f) for f in fetches]
    if isinstance(fetches, tuple):
        # Past the constructor of a named tuple, which may have its own idea of values.
        return tuple.__new__(type(fetches), map(_copied, fetches))
    return fetches


class Plan:
    """One request, compiled for one local session.

    Attributes:
        wanted: Consumer to what it asks for.
        on_pool: Runs it on TensorFlow's threads; takes the feeds, gives raw values.
        on_caller: The same on the calling thread, with the same results.
        results: Gives the dict of consumer to results that raw values stand for.
    """

    def __init__(self, session, wanted, flush, substitute=None, callables=None):
        """Compile a request.

        Args:
            session: `tf.compat.v1.Session` of this process.
            wanted: Consumer to its fetches.
            flush: `DenormalFlush` for the calling thread, or None.
            substitute: What to run and fetch instead (see `body`), or None.
            callables: `WeakValueDictionary` of those of the session's other plans, to
                share what runs the same; or None.

        Raises:
            CannotPlan: If only `Session.run` can serve it.
        """
        # Keeps the leaves alive too, on whose identity the key relies.
        self.wanted = {consumer: _copied(f) for consumer, f in wanted.items()}
        handler = session_lib._FetchHandler(session.graph, self.wanted, {})
        if handler._fetch_handles:
            raise CannotPlan("asks for a session handle, which needs its session")
        self._graph = session.graph
        self._names = [tensor.name for tensor in handler.fetches()]
        self.results = self._recipe(handler)
        options = config_pb2.CallableOptions()
        if substitute is None:
            options.fetch.extend(tensor.name for tensor in handler.fetches())
            options.target.extend(operation.name for operation in handler.targets())
        else:
            options.fetch.extend(substitute.names_of(handler.fetches()))
            options.target.extend(substitute.targets_of(handler.targets()))
            options.feed.extend(substitute.feeds)
        if not options.fetch and not options.target:
            raise CannotPlan("asks for nothing")
        self._options = options
        here = config_pb2.CallableOptions()
        here.CopyFrom(options)
        # RunOptions: "To use the caller thread set this to -1."
        here.run_options.inter_op_thread_pool = -1
        callables = {} if callables is None else callables
        self.on_pool = _compiled(callables, session, options)
        self.on_caller = _compiled(callables, session, here, flush)

    def traced(self, session, feeds, options, run_metadata):
        """Run it with run options, which fill `run_metadata`; gives raw values."""
        graph = session.graph
        targets = [graph.get_operation_by_name(n) for n in self._options.target]
        values, _ = session.run(
            (list(self._options.fetch), targets),
            feed_dict=dict(zip(self._options.feed, feeds, strict=True)),
            options=options,
            run_metadata=run_metadata,
        )
        return values

    def results_of(self, fetches):
        """Give a function of raw values that gives what a part of the fetches asks."""
        # Of a copy: the handler keeps the dict's own view of its names, and the program
        # may change the dict.
        handler = session_lib._FetchHandler(self._graph, _copied(fetches), {})
        return self._recipe(handler)

    def places_of(self, names):
        """Give where in the raw values those of the tensors called `names` are."""
        return tuple(i for i, name in enumerate(self._names) if name in names)

    def _recipe(self, handler):
        """Give the function of raw values that gives what a fetch handler is for."""
        found = iter([self._names.index(t.name) for t in handler.fetches()])
        places = [None if is_op else next(found) for is_op in handler._ops]
        rebuild = handler._fetch_mapper.build_results

        def results(values):
            return rebuild([None if i is None else _owned(values[i]) for i in places])

        return results


def _owned(value):
    # Callables, unlike Session.run, give arrays that lie in TensorFlow's own buffers:
    # a step would change those that a hook kept, a hook would change a variable.
    is_view = isinstance(value, np.ndarray) and not value.flags.owndata
    return value.copy() if is_view else value


def _callable(session, options):
    # _do_call turns an error into the one that Session.run raises, with the op's name
    # and where the program made it.
    do_call = session._do_call
    compiled = do_call(session._make_callable_from_options, options)
    return lambda *feeds: do_call(compiled, *feeds)


def _compiled(callables, session, options, flush=None):
    """Give one of `callables`, or a new one, compiled when first called: it takes time.

    What TensorFlow keeps of it is freed when nobody has the callable any more.
    """
    made = None

    def call(*feeds):
        nonlocal made
        if made is None:
            made = _callable(session, options)
            made = flush.wrap(made) if flush else made
        return made(*feeds)

    return callables.setdefault(options.SerializeToString(deterministic=True), call)


class Planner:
    """The plans of one session.

    Args:
        session: What the hooked session runs its steps on.
        flush: `DenormalFlush` for the calling thread, or None.

    Attributes:
        obstacle: Why this session cannot have plans, as the end of "because the step
            ..."; None for a plain local one.
    """

    def __init__(self, session, flush):
        self._session = session
        self._flush = flush
        self._plans = {}
        self.obstacle = _obstacle(session)

    def plan(self, wanted):
        """Give the plan for `wanted`, consumer to fetches, or None if there is none."""
        if self.obstacle or self._session._closed:
            return None
        try:
            key = tuple([(id(c), structure(f)) for c, f in wanted.items()])
            plan = self._plans.get(key)
            if plan is None and len(self._plans) < MAX_PLANS:
                plan = self._plans[key] = Plan(self._session, wanted, self._flush)
        except CannotPlan:
            return None
        return plan


def _obstacle(session):
    # A debugger's session, or one that a program has changed, must see every run; a
    # gRPC master cannot make callables.
    if (
        type(session) is not tf.compat.v1.Session
        or "run" in vars(session)
        or type(session).run is not _SESSION_RUN
        or session.sess_str
    ):
        return "is not run by a session of this process"
    if kernels.have_own_state(session.graph):
        return "calls a function that is not inlined"
    return None
