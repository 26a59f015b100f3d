"""The steps of one session, run several at a time."""

import collections
import contextlib
import dataclasses
import weakref

import numpy as np

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.plan import MAX_PLANS, CannotPlan, Plan, structure

_RAN = "steps run"
_LOSS = "loss"


@dataclasses.dataclass(kw_only=True)
class _Request:
    """What a run is asked for, as plans.

    Attributes:
        plan: `Plan` for the run, or for its last step.
        but_last: `Plan` for the steps before the last; None until there is need of it.
        is_cut: Whether the last step of a run is always one of its own.
    """

    plan: Plan
    but_last: Plan | None = None
    is_cut: bool = False


class Steps:
    """Runs the steps of a session through their fused body.

    Args:
        session: `tf.compat.v1.Session` of this process.
        fused: `FusedSteps` in its graph.
        global_step: `GlobalStep` of the session.
        loss: The tensor at whose NaN a run ends, or None.
        flush: `DenormalFlush` for the calling thread, or None.

    Attributes:
        always: What every run is asked for, beside the rest: consumer to fetches.
        lacking: Consumers that the last run gave something that it did not compute,
            because a NaN ended it before its last step.
        loss: As given.
        trained: Gives the number of steps trained so far.
    """

    def __init__(self, session, fused, global_step, loss, flush):
        self._session = session
        self._fused = fused
        self._flush = flush
        self._known: collections.OrderedDict = collections.OrderedDict()
        self._callables: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self.loss = loss
        self.trained = global_step.trained
        self.always = {_RAN: fused.ran}
        if loss is not None:
            self.always[_LOSS] = loss
        self.lacking = []
        self._total = self._total_before = 0
        session.run(fused.reset)

    def run(self, call, wanted, count, options, run_metadata):
        """Run `count` steps, or fewer if the loss becomes NaN.

        Args:
            call: Calls a plan and gives the raw values, of (plan, steps, is_rest):
                whether it is one step that was cut off a run.
            wanted: Consumer to fetches, `always` among them.
            count: Steps to run, 1 or more.
            options: `RunOptions` for the last step; may be empty.
            run_metadata: Receives what the last step tells.

        Returns:
            The number of steps run, and consumer to results, of the last one.

        Raises:
            ConfigError: If a hook asks for what the fused steps do not give it.
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

    def completed(self):
        """Give the number of complete steps of a run that has failed."""
        self._total = int(self._session.run(self._fused.total))
        return self._total - self._total_before

    def kept(self, consumer, fetches):
        """Give a caller's values of the last complete step, without running any."""
        plan = self._plan(self._fused.kept, {consumer: fetches})
        return plan.results(plan.on_pool())[consumer]

    def _lacking(self, wanted):
        plans = {c: self._plan(self._fused.but_last, {c: f}) for c, f in wanted.items()}
        return [c for c, plan in plans.items() if plan.places_of(self._fused.extras)]

    def _count(self, results):
        ran = int(results[_RAN])
        self._total += ran
        return ran

    def _request(self, wanted):
        """Give the plans for `wanted`, and keep them among the last that were used."""
        key: object
        try:
            key = tuple([(id(c), structure(f)) for c, f in wanted.items()])
            request = self._known.get(key) or self._make_request(wanted)
        except CannotPlan:
            request = self._make_request(wanted)
            # Found by no other: kept for its callables, which the next like it shares.
            key = request.plan.on_pool
        self._known[key] = request
        self._known.move_to_end(key)
        if len(self._known) > MAX_PLANS:
            self._known.popitem(last=False)
        return request

    def _make_request(self, wanted):
        with contextlib.suppress(CannotPlan):
            return _Request(plan=self._plan(self._fused.steps, wanted))
        try:
            return _Request(
                plan=self._plan(self._fused.last, wanted),
                but_last=self._plan(self._fused.but_last, wanted),
                is_cut=True,
            )
        except CannotPlan as error:
            raise ConfigError(
                f"a hook that does not see every step asks for {error}; list it in the "
                "hook's `fused_fetches`, or take away its `steps_until_due`"
            ) from error

    def _plan(self, substitute, wanted):
        return Plan(self._session, wanted, self._flush, substitute, self._callables)
