"""The steps of one session, run several at a time."""

import contextlib

import numpy as np

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.plan import MAX_PLANS, CannotPlan, Plan, structure

_RAN = "steps run"
_LOSS = "loss"


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
        self._known = {}
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
        plan, but_last = self._plans(wanted)
        is_traced = bool(options.ByteSize())
        is_cut = count > 1 and (but_last is not None or is_traced)
        ran = 0
        if is_cut:
            if but_last is None:
                but_last = self._plan(self._fused.but_last, wanted)
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

    def _plans(self, wanted):
        """Give the plan for `wanted`, and one for the steps before if it is for one."""
        try:
            key = tuple([(id(c), structure(f)) for c, f in wanted.items()])
        except CannotPlan:
            return self._make_plans(wanted)
        plans = self._known.get(key)
        if plans is None:
            plans = self._make_plans(wanted)
            if len(self._known) < MAX_PLANS:
                self._known[key] = plans
        return plans

    def _make_plans(self, wanted):
        with contextlib.suppress(CannotPlan):
            return self._plan(self._fused.steps, wanted), None
        try:
            return tuple(
                self._plan(substitute, wanted)
                for substitute in (self._fused.last, self._fused.but_last)
            )
        except CannotPlan as error:
            raise ConfigError(
                f"a hook that does not see every step asks for {error}; list it in the "
                "hook's `fused_fetches`, or take away its `steps_until_due`"
            ) from error

    def _plan(self, substitute, wanted):
        return Plan(self._session, wanted, self._flush, substitute)
