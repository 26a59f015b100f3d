"""Fetch plans: what one step runs, compiled once and called many times.

`Session.run` parses its fetches at every call. A training loop asks for the same
fetches at nearly every step. So each distinct request is compiled once, into a callable
of the session and a function that turns raw values into the results of each consumer.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.graph import ops
from estimator_runtime.tf_internals import graphs, sessions

_SESSION_RUN = sessions.SESSION_RUN

# Kinds of fetches that never change what they refer to.
_LEAVES = (
    tf.Tensor,
    tf.Operation,
    tf.Variable,
    graphs.BaseResourceVariable,
    graphs.CompositeTensor,
)
# Other mappings, such as a defaultdict, have more to them than their items.
_MAPPINGS = (dict, collections.OrderedDict)
# The limit keeps requests that differ at every step from filling memory with plans.
MAX_PLANS = 64


class CannotPlan(Exception):
    """A request that only `Session.run` can serve."""


@functools.lru_cache(maxsize=256)  # an instance check costs more than all the rest
def _is_leaf(kind: type) -> bool:
    """Return whether a kind of fetch counts by its identity."""
    return issubclass(kind, _LEAVES)


def structure(fetches: Any) -> Hashable:
    """Return a hashable key that is equal for equal requests.

    Containers count by their contents and not by their identity, because some hooks
    build a new dict or list at every step. Leaves count by identity, so whoever keeps
    the key must keep the leaves alive.

    Raises:
        CannotPlan: If a part is of a kind that no plan supports.
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


def key_of(fetches: Any) -> Hashable:
    """Return the `structure` of a request; a new key if no plan can support it."""
    try:
        return structure(fetches)
    except CannotPlan:
        return object()  # equal to no other key


def request_key(wanted: Mapping[Any, Any]) -> Hashable:
    """Return a key for what consumers fetch, which is equal for equal requests.

    Raises:
        CannotPlan: If a part is of a kind that no plan supports.
    """
    return tuple([(id(c), structure(f)) for c, f in wanted.items()])


def copied(fetches: Any) -> Any:
    """Copy the containers, which the program may change, but not the leaves."""
    if type(fetches) in _MAPPINGS:  # others have no key, so their plan is used once
        return type(fetches)((name, copied(f)) for name, f in fetches.items())
    if isinstance(fetches, list):
        return [copied(f) for f in fetches]
    if isinstance(fetches, tuple):
        # Bypass the constructor of a named tuple, which may change the values.
        return tuple.__new__(type(fetches), map(copied, fetches))
    return fetches


@dataclasses.dataclass(frozen=True, kw_only=True)
class Substitute:
    """What to run and fetch in place of the ops and tensors of a step.

    Attributes:
        feeds: Names of the placeholders to feed.
        target: The op that always runs, whatever is asked for.
        values: Maps the name of a tensor to the tensor that has its value, and the
            name of an op to the op that replaces it.
    """

    feeds: tuple[str, ...]
    target: tf.Operation
    values: dict[str, Any]

    def names_of(self, wanted: Sequence[tf.Tensor | tf.Operation]) -> list[str]:
        """Return the names of what to fetch or run for `wanted`, in the same order.

        Raises:
            CannotPlan: If something has no substitute.
        """
        unknown = [each.name for each in wanted if each.name not in self.values]
        if unknown:
            raise CannotPlan(", ".join(unknown))
        return [self.values[each.name].name for each in wanted]


class Plan:
    """One request, compiled for one local session.

    Args:
        session: A session of this process.
        wanted: Consumer to its fetches.
        flush: Flushes denormals on the calling thread, which then runs the request;
            None to run it on TensorFlow's threads.
        substitute: What to run and fetch instead, or None.

    Attributes:
        wanted: Consumer to its fetches.
        tensors: The tensors of the raw values, in their order.
        targets: The ops that run too.
        flush: As given.
        is_on_caller: Whether the calling thread runs the request.
        results: Turns raw values into a dict of consumer to results.

    Raises:
        CannotPlan: If only `Session.run` can serve the request.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        wanted: Mapping[Any, Any],
        flush: DenormalFlush | None,
        substitute: Substitute | None = None,
    ) -> None:
        # The copy also keeps the leaves alive: the key relies on their identity.
        self.wanted = {consumer: copied(f) for consumer, f in wanted.items()}
        handler = sessions.FetchHandler(session.graph, self.wanted, {})
        if handler.has_handles:
            raise CannotPlan("asks for a session handle, which needs its session")
        self._session, self.flush = session, flush
        self.tensors: list[tf.Tensor] = handler.fetches()
        self.targets: list[tf.Operation] = handler.targets()
        self._names = [tensor.name for tensor in self.tensors]
        self.results = recipe(handler, self._names, sessions.owned)
        options = config_pb2.CallableOptions()
        if substitute is None:
            options.fetch.extend(self._names)
            options.target.extend(operation.name for operation in self.targets)
        else:
            options.fetch.extend(substitute.names_of(self.tensors))
            targets = substitute.names_of(self.targets)
            options.target.extend(sorted({substitute.target.name, *targets}))
            options.feed.extend(substitute.feeds)
        if not options.fetch and not options.target:
            raise CannotPlan("asks for nothing")
        self._options = options
        self.is_on_caller = flush is not None
        if self.is_on_caller:
            # RunOptions: "To use the caller thread set this to -1."
            options.run_options.inter_op_thread_pool = -1

    @functools.cached_property
    def run(self) -> Callable[..., list[Any]]:
        """Runs the request; takes the feeds and returns raw values.

        It is compiled at its first use, because that takes time. TensorFlow frees what
        it has compiled when nothing refers to the plan any more.
        """
        compiled = sessions.compiled(self._session, self._options)
        return self.flush.wrap(compiled) if self.flush else compiled

    def results_of(self, fetches: Any) -> Callable[[Sequence[Any]], Any]:
        """Return a function from raw values to the results of some of the fetches."""
        # Copy the fetches: the handler keeps a view of a dict's names, and the program
        # may change the dict.
        handler = sessions.FetchHandler(self._session.graph, copied(fetches), {})
        return recipe(handler, self._names, sessions.owned)

    def places_of(self, names: Collection[str]) -> tuple[int, ...]:
        """Return the indices of the named tensors in the raw values."""
        return tuple(i for i, name in enumerate(self._names) if name in names)


def recipe(
    handler: Any, names: Sequence[str], own: Callable[[Any], Any]
) -> Callable[[Sequence[Any]], Any]:
    """Return a function from raw values to the results of a fetch handler.

    Args:
        handler: The fetch handler.
        names: The names of the tensors that have the raw values.
        own: Applied to each raw value.
    """
    found = iter([names.index(t.name) for t in handler.fetches()])
    places = [None if is_op else next(found) for is_op in handler.are_ops]
    rebuild = handler.rebuild

    def results(values: Sequence[Any]) -> Any:
        return rebuild([None if i is None else own(values[i]) for i in places])

    return results


class Planner:
    """The plans of one session.

    Args:
        session: The session on which the hooked session runs its steps.
        flush_for: Takes the fetches of a request, and returns the `flush` of its plan.

    Attributes:
        obstacle: The reason why this session cannot have plans, which completes
            "because the step ..."; None for a plain local session.
    """

    def __init__(
        self, session: Any, flush_for: Callable[[Any], DenormalFlush | None]
    ) -> None:
        self._session = session
        self._flush_for = flush_for
        self._plans: dict[Hashable, Plan] = {}
        self.obstacle = _obstacle(session)

    def plan(self, wanted: Mapping[Any, Any]) -> Plan | None:
        """Return the plan for a request, consumer to fetches.

        The result is None if `Session.run` has to serve the request.
        """
        if self.obstacle or sessions.is_closed(self._session):
            return None
        try:
            key = request_key(wanted)
            plan = self._plans.get(key)
            if plan is None and len(self._plans) < MAX_PLANS:
                flush = self._flush_for(wanted)
                plan = self._plans[key] = Plan(self._session, wanted, flush)
        except CannotPlan:
            return None
        return plan


def is_plain(session: Any) -> bool:
    """Return whether a session is TensorFlow's own, as it is.

    A debugger's session, or one that a program has changed, must see every run.
    """
    return (
        type(session) is tf.compat.v1.Session
        and "run" not in vars(session)
        and type(session).run is _SESSION_RUN
    )


def _obstacle(session: Any) -> str | None:
    """Return the reason why a session cannot have plans, or None."""
    if not is_plain(session) or session.sess_str:  # a gRPC master has no callables
        return "is not run by a session of this process"
    if ops.have_own_state(session.graph):
        return "calls a function whose ops have state of their own"
    return None
