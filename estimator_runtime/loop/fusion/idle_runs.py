"""Several steps in one call, between the steps at which hooks are called.

`IdleHooks` knows how many steps no hook has to see. `IdleRuns` runs them in a loop, and
nothing else: the step at which a hook is due, and all that hooks fetch there, is run as
ever, by the program's own ops. So the only thing that has to be equal is the step
itself. A step for which that is not certain is not put in a loop.

The loop is made once. With a number for `steps_per_run`, that is at the first such
step. With "auto", it is when it pays:

- `TRIAL_STEPS` such steps have run singly, and took `SHORT_SECS` each at most. A long
  step has little to gain.
- At least `FEWEST_STEPS` are to come, and `STEPS_PER_OP` more for each op of the step
  that is not a constant. A step in the loop saves about 0.1 ms, and making the loop
  takes 0.1 s and 0.5 ms for each op. How many come is known from StopAtStepHook.
  Without one, as many are expected as have run already.

A run ends before the next step at which a hook is due, after the number of steps that
was asked for, or when `RunLength.secs` are over, which the loop itself checks before
each step.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from estimator_runtime.loop.caller_thread import CallingThread
from estimator_runtime.loop.fusion import errors, while_loop
from estimator_runtime.loop.fusion.session_config import (
    check_config,
    has_only_cpus,
    may_split,
)
from estimator_runtime.loop.graph import ops as graph_ops
from estimator_runtime.loop.graph.subgraph import CannotFuse, Subgraph
from estimator_runtime.loop.hooks import schedule as hook_schedule
from estimator_runtime.loop.plan import CannotPlan, Plan
from estimator_runtime.loop.run_length import RunLength
from estimator_runtime.output.training_log import TRAINING_LOG
from estimator_runtime.tf_internals import graphs

TRIAL_STEPS = 20
SHORT_SECS = 0.02
FEWEST_STEPS = 1000
STEPS_PER_OP = 5
_RAN = "steps run"
_FIRST_STEPS = 16


class CompletedRun(NamedTuple):
    """What a run of steps gave.

    Attributes:
        steps: The number of complete steps.
        raw: Raw values of the plan, of the last complete step; None if there is none.
        error: The error that ended the run, or None.
    """

    steps: int
    raw: Any
    error: BaseException | None


class IdleRuns:
    """Runs the steps of one session that no hook has to see.

    Args:
        session: A session of this process.
        hooks: Its hooks.
        calling_thread: Chooses the thread that runs the steps.
        run_length: How long a run may be, and whether steps are run one by one.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        hooks: Sequence[Any],
        calling_thread: CallingThread,
        run_length: RunLength,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._session, self._hooks = session, hooks
        self._calling_thread, self._run_length = calling_thread, run_length
        self._clock = clock
        self._singles = 0
        self._secs: list[float] = []  # of the last steps that have run singly
        # The number of single steps after which a loop pays, once it is known.
        self._pays_after: float | None = None
        self._loop: _Loop | None = None
        self._made_for: Plan | None = None

    def run(self, plan: Plan, most: int, trained: int) -> CompletedRun:
        """Run at least one step, and return the error of a step, if there is one.

        Args:
            plan: The plan of the steps.
            most: The number of steps before the next one that a hook has to see.
            trained: The number of steps trained so far.
        """
        if self._run_length.is_single:
            return _single(plan)
        if self._made_for is None:
            if not self._pays(plan, trained):
                began = self._clock()
                run = _single(plan)
                self._singles += 1
                self._secs = [*self._secs[1 - TRIAL_STEPS :], self._clock() - began]
                return run
            self._make(plan)
        if self._loop is None or self._made_for is not plan:
            return _single(plan)
        # If the program has trained steps in between, a run would end too late for the
        # hooks. A single step shows that by its values.
        if self._calling_thread.global_step.trained() != trained:
            return _single(plan)
        length = self._run_length
        return self._loop.run(min(most, length.most), length.secs)

    def _pays(self, plan: Plan, trained: int) -> bool:
        """Return whether the steps to come are worth a loop, or one was asked for."""
        if not self._run_length.is_auto:
            return True
        if self._singles < TRIAL_STEPS or statistics.median(self._secs) > SHORT_SECS:
            return False
        if self._pays_after is None:
            roots = [*plan.targets, *(tensor.op for tensor in plan.tensors)]
            step = Subgraph(self._session.graph, roots)
            ops = sum(op.type != "Const" for op in step.ops.values())
            fewest = FEWEST_STEPS + STEPS_PER_OP * ops
            left = hook_schedule.steps_left(self._hooks, trained)
            if left is None:
                self._pays_after = fewest
            else:  # fewer and fewer are left, so this is asked once
                self._pays_after = 0 if left >= fewest else math.inf
        return self._singles >= self._pays_after

    def _make(self, plan: Plan) -> None:
        """Make the loop, if the step can be in one, and log which of the two."""
        self._made_for = plan
        began = self._clock()
        try:
            self._loop = self._loop_of(plan)
        except (CannotFuse, CannotPlan) as reason:
            self._run_length.run_singly(reason)
            return
        except (TypeError, ValueError, NotImplementedError, tf.errors.OpError) as error:
            # A single step needs no loop. What else is wrong, it finds too.
            why = str(error).partition("\n")[0]
            self._run_length.run_singly(CannotFuse(f"cannot be in a loop: {why}"))
            return
        TRAINING_LOG.info(
            "running several steps per session call from now on: up to the next one "
            "that a hook must see, for %g s at most (steps_per_run=%s; made in %.2g s)",
            self._run_length.secs,
            self._run_length,
            self._clock() - began,
        )

    def _loop_of(self, plan: Plan) -> _Loop:
        """Add the loop of a plan's steps to the graph.

        Raises:
            CannotFuse: If the results could be other ones than those of single steps.
        """
        session, graph = self._session, self._session.graph
        check_config(session)
        if self._run_length.is_auto and not has_only_cpus(session):
            raise CannotFuse("does not run on CPUs only")
        if graphs.is_deterministic():
            raise CannotFuse("cannot be timed (enable_op_determinism)")
        global_step = self._calling_thread.global_step
        tensors = [t for t in plan.tensors if t.name not in global_step.reads]
        step = Subgraph(graph, [*plan.targets, *(each.op for each in tensors)])
        for op in sorted(step.ops.values(), key=lambda op: op.name):
            # Stateless ops have no generator, and others have theirs in a variable.
            if any(each.kind.is_random for each in graph_ops.executed(graph, [op])):
                raise CannotFuse(
                    f"draws random numbers, {op.name!r}, whose generator the loop "
                    "would start again"
                )
        watched = hook_schedule.watched_losses(self._hooks)
        losses = {each.name for each in watched}
        request = while_loop.LoopRequest(
            targets=plan.targets,
            tensors=tensors,
            global_step=global_step.variable,
            losses=[each for each in tensors if each.name in losses],
            may_split=may_split(session),
        )
        return _Loop(session, step, plan, while_loop.fuse(step, request))


class _Loop:
    """A loop of steps that returns what a plan returns.

    Args:
        session: The session.
        step: The part of the graph that is the step.
        plan: The plan of a single step.
        fused: The loop in the graph.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        step: Subgraph,
        plan: Plan,
        fused: while_loop.FusedSteps,
    ) -> None:
        self._session, self._step, self._fused = session, step, fused
        wanted = {**plan.wanted, _RAN: fused.ran}
        self._steps = Plan(session, wanted, plan.flush, fused.steps)
        self._kept = Plan(session, plan.wanted, plan.flush, fused.kept)
        self._call = self._steps.run  # compiles, which takes longer than a run may
        self._total = 0  # complete steps of all runs
        self._longest = _FIRST_STEPS
        session.run(fused.reset)

    def run(self, most: int, secs: float) -> CompletedRun:
        """Run up to `most` steps, and begin none after `secs` seconds but the first.

        The loop has no clock but the wall clock, which may be set back meanwhile. So a
        run has at most twice the steps of the longest one before.
        """
        # A training may end at a fraction of a step (`steps=len(data) / batch_size`).
        # The step that passes it is the last one.
        most = math.ceil(min(most, 2 * self._longest))
        end = np.float64(time.time() + secs)
        try:
            *raw, steps = self._call(np.int32(most), end)
        except BaseException as error:  # noqa: BLE001 (the caller raises it)
            before = self._total
            with contextlib.suppress(RuntimeError, tf.errors.OpError):  # is closed
                self._total = int(self._session.run(self._fused.total))
            steps = self._total - before
            values = self._kept.run() if steps else None
            return CompletedRun(steps, values, errors.of_single_step(error, self._step))
        self._total += int(steps)
        self._longest = max(self._longest, int(steps))
        return CompletedRun(int(steps), raw, None)


def _single(plan: Plan) -> CompletedRun:
    """Run one step."""
    try:
        return CompletedRun(1, plan.run(), None)
    except BaseException as error:  # noqa: BLE001 (the caller raises it)
        return CompletedRun(0, None, error)
