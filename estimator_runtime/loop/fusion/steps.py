"""Runs several steps in one call of the session."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.denormals import DenormalFlush
from estimator_runtime.loop.fusion.extras import Extras
from estimator_runtime.loop.fusion.while_loop import FusedSteps
from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph
from estimator_runtime.loop.plan import (
    MAX_PLANS,
    CannotPlan,
    Plan,
    copied,
    recipe,
    request_key,
)
from estimator_runtime.tf_internals import sessions

_RAN = "steps run"
_VALUES = "values"


class _RunRequest:
    """What the caller and the hooks fetch in a run of steps.

    Args:
        steps: The steps.
        wanted: Consumer to fetches.

    Attributes:
        extras: What is computed after the steps.
        plan: Runs the steps, and returns the values of the last one.
        names: The names of these values.
    """

    def __init__(self, steps: Steps, wanted: Mapping[Any, Any]) -> None:
        # The copy also keeps the leaves alive: the key relies on their identity.
        self._wanted = {consumer: copied(f) for consumer, f in wanted.items()}
        handler = sessions.FetchHandler(steps.step.graph, self._wanted, {})
        tensors, known = handler.fetches(), steps.fused.steps.values
        in_step = steps.step.ops
        needed = {t.name: t for t in tensors if t.name in known or t.op.name in in_step}
        extra = [t for t in tensors if t.name not in needed]
        try:
            self.extras = Extras(steps.session, steps.step, extra, handler.targets())
        except CannotFuse as reason:
            raise ConfigError(
                f"a hook makes it impossible to run several steps: the step {reason}; "
                "take away its `steps_until_due`"
            ) from reason
        needed |= self.extras.from_step
        self.names = list(needed)
        try:
            self.plan = steps.plan(list(needed.values()))
        except CannotPlan as error:
            raise ConfigError(
                f"a hook that does not see every step asks for {error}; list it in the "
                "hook's `fused_fetches`, or take away its `steps_until_due`"
            ) from error
        self._all_names = [tensor.name for tensor in tensors]
        self._results = recipe(handler, self._all_names, lambda value: value)

    def results(self, values: Mapping[str, Any]) -> Any:
        """Return the results of each consumer from values by name of the tensor."""
        return self._results([values[name] for name in self._all_names])


class Steps:
    """Runs the steps of a session through their fused body.

    If hooks ask for something that has to be read before the last step, the steps
    before it are a call of their own. So they are if the request has run options.

    Args:
        session: A `tf.compat.v1.Session` of this process.
        step: The part of the graph that is the step.
        fused: The loop of steps in the session's graph.
        global_step: The global step of the session.
        losses: The tensors of the step whose NaN ends a run.
        flush: Flushes denormals on the calling thread, which then runs the steps; None
            to run them on TensorFlow's threads.

    Attributes:
        session: As given.
        step: As given.
        fused: As given.
        trained: Returns the number of steps trained so far.
    """

    def __init__(
        self,
        session: Any,
        step: Subgraph,
        fused: FusedSteps,
        global_step: GlobalStep,
        losses: Sequence[tf.Tensor],
        flush: DenormalFlush | None,
    ) -> None:
        self.session, self.step, self.fused = session, step, fused
        self._flush = flush
        self._requests: collections.OrderedDict[Hashable, _RunRequest]
        self._requests = collections.OrderedDict()  # those used last
        # By the names of what they return.
        self._plans: weakref.WeakValueDictionary[tuple[str, ...], Plan]
        self._plans = weakref.WeakValueDictionary()
        self._but_last = self.plan(losses)
        self.trained = global_step.trained
        self._total = self._total_before = 0
        session.run(fused.reset)

    def plan(self, tensors: Sequence[tf.Tensor]) -> Plan:
        """Return a plan that runs steps, whose number is its feed.

        Raises:
            CannotPlan: If the loop does not return the values of some tensor.
        """
        names = tuple(tensor.name for tensor in tensors)
        plan = self._plans.get(names)
        if plan is None:
            wanted = {_RAN: self.fused.ran, _VALUES: list(tensors)}
            plan = Plan(self.session, wanted, self._flush, self.fused.steps)
            self._plans[names] = plan
        return plan

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
        request = self._request(wanted)
        is_plain = not options.ByteSize()
        ran, left = 0, count
        if count > 1 and (request.extras.reads or not is_plain):
            first = self._but_last.results(self._but_last.run(np.int32(count - 1)))
            ran, left = self._count(first), 1
            if any(np.isnan(each).any() for each in first[_VALUES]):
                return ran, {}
        before = request.extras.read() if request.extras.reads else {}
        feeds = [np.int32(left)]
        last = request.plan.results(
            request.plan.run(*feeds)
            if is_plain
            else request.plan.traced(feeds, options, run_metadata)
        )
        ran += self._count(last)
        if ran < count:
            return ran, {}
        values = dict(zip(request.names, last[_VALUES], strict=True))
        values.update(before)
        values.update(request.extras.compute(values))
        return ran, request.results(values)

    def completed(self) -> int:
        """Return the number of complete steps of a run that has failed."""
        self._total = int(self.session.run(self.fused.total))
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
                plan = Plan(
                    self.session, {consumer: fetches}, self._flush, self.fused.kept
                )
            except CannotPlan:
                continue
            found.update(plan.results(plan.run()))
        return found

    def _count(self, results: Mapping[Any, Any]) -> int:
        """Return how many steps a call had, and add them to the total."""
        ran = int(results[_RAN])
        self._total += ran
        return ran

    def _request(self, wanted: Mapping[Any, Any]) -> _RunRequest:
        try:
            key = request_key(wanted)
        except CannotPlan:  # no later request would find it
            return _RunRequest(self, wanted)
        if key not in self._requests:
            self._requests[key] = _RunRequest(self, wanted)
        self._requests.move_to_end(key)
        if len(self._requests) > MAX_PLANS:
            self._requests.popitem(last=False)
        return self._requests[key]
