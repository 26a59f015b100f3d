"""The steps of one session, run several at a time."""

import collections
import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.caller_thread import DenormalFlush
from estimator_runtime.loop.fusion.while_loop import FusedSteps
from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.plan import (
    MAX_PLANS,
    CannotPlan,
    Plan,
    Substitute,
    structure,
)

_RAN = "steps run"
_LOSS = "loss"


@dataclasses.dataclass(kw_only=True)
class _RunRequest:
    """The plans that serve one request."""

    plan: Plan  # for the whole run, or for its last step
    but_last: Plan | None = None  # for the steps before it; None until it is needed
    is_cut: bool = False  # whether the last step of a run is always run on its own


class Steps:
    """Runs the steps of a session through their fused body.

    Args:
        session: A `tf.compat.v1.Session` of this process.
        fused: The loop of steps in the session's graph.
        global_step: The global step of the session.
        loss: The tensor whose NaN ends a run, or None.
        flush: Flushes denormals on the calling thread; None if that is not possible.

    Attributes:
        always: What every run fetches beside what it is asked for: consumer to
            fetches.
        lacking: Consumers whose values the last run did not compute, because a NaN
            ended it before its last step.
        loss: As given.
        trained: Returns the number of steps trained so far.
    """

    def __init__(
        self,
        session: Any,
        fused: FusedSteps,
        global_step: GlobalStep,
        loss: Any,
        flush: DenormalFlush | None,
    ) -> None:
        self._session = session
        self._fused = fused
        self._flush = flush
        self._known: collections.OrderedDict[Hashable, _RunRequest]
        self._known = collections.OrderedDict()
        self._callables: weakref.WeakValueDictionary[bytes, Callable[..., Any]]
        self._callables = weakref.WeakValueDictionary()
        self.loss = loss
        self.trained = global_step.trained
        self.always = {_RAN: fused.ran}
        if loss is not None:
            self.always[_LOSS] = loss
        self.lacking: list[Any] = []
        self._total = self._total_before = 0
        session.run(fused.reset)

    def run(
        self,
        call: Callable[..., Sequence[Any]],
        wanted: Mapping[Any, Any],
        count: int,
        options: Any,
        run_metadata: Any,
    ) -> tuple[int, dict[Any, Any]]:
        """Run `count` steps, or fewer if the loss becomes NaN.

        Args:
            call: Runs a plan and returns the raw values. It takes the plan, the number
                of steps, and the keyword `is_rest`: whether this is the last step of a
                longer run, run on its own.
            wanted: Consumer to fetches, those of `always` included.
            count: The number of steps to run, 1 or more.
            options: `RunOptions` for the last step; may be empty.
            run_metadata: `RunMetadata` that receives what the last step reports.

        Returns:
            The number of steps run, and consumer to results of the last one.

        Raises:
            ConfigError: If a hook asks for a value that the fused steps do not have.
        """
        self._total_before = self._total
        self.lacking = []
        request = self._request(wanted)
        plan, but_last = request.plan, request.but_last
        is_traced = bool(options.ByteSize())
        is_cut = count > 1 and (request.is_cut or is_traced)
        ran = 0
        if is_cut:
            if but_last is None:
                but_last = self._plan(self._fused.but_last, wanted)
                request.but_last = but_last
            results = but_last.results(call(but_last, count - 1))
            ran = self._count(results)
            if np.any(np.isnan(results.get(_LOSS, 0.0))):
                self.lacking = self._lacking(wanted)
                return ran, results
            count = 1
        if is_traced:
            values = plan.traced(self._session, [count], options, run_metadata)
        else:
            values = call(plan, count, is_rest=is_cut)
        results = plan.results(values)
        return ran + self._count(results), results

    def completed(self) -> int:
        """Return the number of complete steps of a run that has failed."""
        self._total = int(self._session.run(self._fused.total))
        return self._total - self._total_before

    def kept(self, consumer: object, fetches: Any) -> Any:
        """Return a caller's values of the last complete step; run no step."""
        plan = self._plan(self._fused.kept, {consumer: fetches})
        return plan.results(plan.on_pool())[consumer]

    def _lacking(self, wanted: Mapping[Any, Any]) -> list[Any]:
        """Return the consumers that ask for something that is not part of a step."""
        plans = {c: self._plan(self._fused.but_last, {c: f}) for c, f in wanted.items()}
        return [c for c, plan in plans.items() if plan.places_of(self._fused.extras)]

    def _count(self, results: Mapping[Any, Any]) -> int:
        """Return how many steps a run had, and add them to the total."""
        ran = int(results[_RAN])
        self._total += ran
        return ran

    def _request(self, wanted: Mapping[Any, Any]) -> _RunRequest:
        """Return the plans for `wanted`, from a cache of the last ones used."""
        key: Hashable
        try:
            key = tuple([(id(c), structure(f)) for c, f in wanted.items()])
            request = self._known.get(key) or self._make_request(wanted)
        except CannotPlan:
            request = self._make_request(wanted)
            # No later request finds this entry. The cache keeps its callables alive,
            # so that the next request that runs the same can share them.
            key = request.plan.on_pool
        self._known[key] = request
        self._known.move_to_end(key)
        if len(self._known) > MAX_PLANS:
            self._known.popitem(last=False)
        return request

    def _make_request(self, wanted: Mapping[Any, Any]) -> _RunRequest:
        """Compile the plans for `wanted`."""
        with contextlib.suppress(CannotPlan):
            return _RunRequest(plan=self._plan(self._fused.steps, wanted))
        try:
            return _RunRequest(
                plan=self._plan(self._fused.last, wanted),
                but_last=self._plan(self._fused.but_last, wanted),
                is_cut=True,
            )
        except CannotPlan as error:
            raise ConfigError(
                f"a hook that does not see every step asks for {error}; list it in the "
                "hook's `fused_fetches`, or take away its `steps_until_due`"
            ) from error

    def _plan(self, substitute: Substitute, wanted: Mapping[Any, Any]) -> Plan:
        """Compile one plan, which shares callables with the others of the session."""
        return Plan(self._session, wanted, self._flush, substitute, self._callables)
