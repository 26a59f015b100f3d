"""Runs several steps in one call of the session."""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.fusion.while_loop import FusedSteps
from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.plan import (
    MAX_PLANS,
    CannotPlan,
    Plan,
    Substitute,
    request_key,
)

_RAN = "steps run"
_LOSSES = "losses"


class Steps:
    """Runs the steps of a session through their fused body.

    If hooks ask for something that has to be read before the last step, the run is two
    calls: the steps before the last one, and the last one. So it is if the request has
    run options, or is of a kind that has no key.

    Args:
        session: A `tf.compat.v1.Session` of this process.
        fused: The loop of steps in the session's graph.
        global_step: The global step of the session.
        losses: The tensors of the step whose NaN ends a run.
        flush_for: Takes the fetches of a request for a single step, and returns the
            `flush` of its plan.

    Attributes:
        trained: Returns the number of steps trained so far.
    """

    def __init__(
        self,
        session: Any,
        fused: FusedSteps,
        global_step: GlobalStep,
        losses: Sequence[tf.Tensor],
        flush_for: Callable[[Any], DenormalFlush | None],
    ) -> None:
        self._session = session
        self._fused = fused
        self._flush_for = flush_for
        # For the requests used last, by key: a plan, and whether it runs one step only.
        self._known: collections.OrderedDict[Hashable, tuple[Plan, bool]]
        self._known = collections.OrderedDict()
        losses = list(losses)
        self._but_last = self._plan(fused.steps, {_RAN: fused.ran, _LOSSES: losses})
        self.trained = global_step.trained
        self._total = self._total_before = 0
        session.run(fused.reset)

    def run(
        self, wanted: Mapping[Any, Any], count: int, options: Any, run_metadata: Any
    ) -> tuple[int, dict[Any, Any]]:
        """Run `count` steps, or fewer if a loss becomes NaN.

        Args:
            wanted: Consumer to fetches.
            count: The number of steps to run, 1 or more.
            options: `RunOptions` for the last step; may be empty.
            run_metadata: `RunMetadata` that receives what the last step reports.

        Returns:
            The number of steps run, and consumer to results of the last one. The
            results are empty if a NaN has ended the run before its last step.

        Raises:
            ConfigError: If a hook asks for a value that the fused steps do not have.
        """
        self._total_before = self._total
        plan, is_of_one, is_known = self._request({**wanted, _RAN: self._fused.ran})
        is_plain = is_known and not options.ByteSize()
        ran, left = 0, count
        if count > 1 and (is_of_one or not is_plain):
            first = self._but_last.results(self._but_last.run(np.int32(count - 1)))
            ran, left = self._count(first), 1
            if any(np.isnan(each).any() for each in first[_LOSSES]):
                return ran, {}
        feeds = [] if is_of_one else [np.int32(left)]
        results = plan.results(
            plan.run(*feeds) if is_plain else plan.traced(feeds, options, run_metadata)
        )
        ran += self._count(results)
        return ran, results if ran == count else {}

    def completed(self) -> int:
        """Return the number of complete steps of a run that has failed."""
        self._total = int(self._session.run(self._fused.total))
        return self._total - self._total_before

    def kept(self, wanted: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return results of the last complete step, without running one.

        Args:
            wanted: Consumer to fetches.

        Returns:
            Consumer to results, without the consumers that ask for something that the
            steps do not keep (see `FusedSteps.kept`).
        """
        found: dict[Any, Any] = {}
        for consumer, fetches in wanted.items():
            try:
                plan = self._plan(self._fused.kept, {consumer: fetches})
            except CannotPlan:
                continue
            found.update(plan.results(plan.run()))
        return found

    def _count(self, results: Mapping[Any, Any]) -> int:
        """Return how many steps a call had, and add them to the total."""
        ran = int(results[_RAN])
        self._total += ran
        return ran

    def _request(self, wanted: Mapping[Any, Any]) -> tuple[Plan, bool, bool]:
        """Return the plan of a request, whether it is of one step, and has a key."""
        try:
            key = request_key(wanted)
        except CannotPlan:  # not compiled, because no later request would find it
            return *self._make_plan(wanted), False
        if key not in self._known:
            self._known[key] = self._make_plan(wanted)
        self._known.move_to_end(key)
        if len(self._known) > MAX_PLANS:
            self._known.popitem(last=False)
        return *self._known[key], True

    def _make_plan(self, wanted: Mapping[Any, Any]) -> tuple[Plan, bool]:
        """Return a plan, and whether it runs one step only."""
        try:
            return self._plan(self._fused.steps, wanted), False
        except CannotPlan:
            pass
        try:
            return self._plan(self._fused.last, wanted), True
        except CannotPlan as error:
            raise ConfigError(
                f"a hook that does not see every step asks for {error}; list it in the "
                "hook's `fused_fetches`, or take away its `steps_until_due`"
            ) from error

    def _plan(self, substitute: Substitute, wanted: Mapping[Any, Any]) -> Plan:
        step = {c: fetches for c, fetches in wanted.items() if c != _RAN}
        return Plan(self._session, wanted, self._flush_for(step), substitute)
