"""Steps at which no hook would do anything, which are run without calling any.

TensorFlow's own hooks wait through most steps: they fetch the global step or the loss,
look at the value, and do nothing else. If a session has only such hooks, the next step
at which one of them acts is known. Until then, `IdleHooks` checks the same values in
their place, as the step has fetched them. If a value is not the expected one, the hooks
are called for that step as for any other. That happens if a loss is NaN, if the program
has changed the global step, or if a checkpoint is due by the clock.

Any other hook has to see every step, even a subclass or one with a timer of the
program's own. If there is one, all hooks see every step. The one exception is a hook
that only initializes, which has nothing to see.

A sequence of such steps is an idle stretch. There is none once a second thread has
called the session. The step that is under way then is one that the hooks only count.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.hooks import schedule as hook_schedule
from estimator_runtime.loop.plan import Plan, key_of
from estimator_runtime.tf_internals import hooks as tf_hooks


class IdleHooks:
    """The single steps until one that some hook has to see.

    Args:
        hooks: The hooks of a session.
        clock: Returns the time in seconds, by the clock of the hooks' timers.

    Attributes:
        obstacle: The reason why hooks have to see every step, which completes "because
            the step ..."; None if there can be an idle stretch.
        plan: The plan of every step of the stretch; None outside one.
        left: The number of steps before the next one that a hook has to see, as of the
            last call of `plan_for`.
        trained: The number of steps trained so far, as the stretch counts them.
        results: Turns raw values of the plan into the caller's results.
    """

    def __init__(
        self,
        hooks: Sequence[Any],
        clock: Callable[[], float] = tf_hooks.current,
    ) -> None:
        self.obstacle = _obstacle(hooks)
        self.plan: Plan | None = None
        self.left = self.trained = 0
        self.results: Any = None
        self._hooks = hooks
        self._clock = clock
        self._is_due = self._was_due = True  # whether a hook has to see the step
        self._made_for: Any = None  # the plan, and the key of the fetches of `results`
        self._steps = self._passed = 0
        self._deadline = math.inf
        self._global_step: Any = None
        self._places: tuple[int, ...] = ()
        self._early_places: tuple[int, ...] = ()
        self._loss_places: tuple[int, ...] = ()

    def forbid(self) -> None:
        """Make hooks see every step from now on."""
        self.obstacle = "must be seen by all hooks"

    def begin(
        self,
        plan: Plan,
        global_step: GlobalStep,
        fetches: Any,
        reads: Iterable[Any],
    ) -> None:
        """Begin an idle stretch, if possible, after a step that the hooks have seen.

        Args:
            plan: The plan of that step. It adds 1 to the global step.
            global_step: The global step of the session.
            fetches: What the caller asks for.
            reads: The values of the global step that the step has read.
        """
        losses = {loss.name for loss in hook_schedule.watched_losses(self._hooks)}
        self._places = plan.places_of(global_step.reads)
        self._early_places = plan.places_of(global_step.early)
        self._loss_places = plan.places_of(losses)
        if len(self._loss_places) < len(losses):
            return
        trained = global_step.trained()
        if not {0, 1}.issuperset(trained - each for each in reads):
            return  # the program has changed it too
        due = hook_schedule.until_due(self._hooks, trained)
        self._is_due = due == 1
        # A step that was due may have fetched more than the next steps will.
        if self._was_due or self._is_due:
            return
        key = key_of(fetches)
        if self._made_for != (plan, key):
            self._made_for = plan, key
            self.results = plan.results_of(fetches)
        self.plan = plan
        self._global_step = global_step
        self._steps = sys.maxsize if due is None else due - 1
        self._passed, self.trained = 0, trained
        self._deadline = min(map(_deadline, self._hooks), default=math.inf)

    def plan_for(self, fetches: Any) -> Plan | None:
        """Return the plan of the next step if it asks for `fetches`; else None."""
        plan = self.plan
        if plan is None or self.obstacle or key_of(fetches) != self._made_for[1]:
            return None
        self.left = self._steps - self._passed
        return plan if self.left > 0 else None

    def count(self, steps: int) -> None:
        """Count steps whose values need no check."""
        if self.plan is not None:
            self.trained += steps
            self._passed += steps
        else:  # a call of another thread has ended the stretch while they ran
            hook_schedule.skip(self._hooks, steps)

    def passes(self, raw: list[Any]) -> bool:
        """Return whether a step had the expected values, and count it if so.

        If the result is False, the hooks must see the step.

        Args:
            raw: Raw values of the plan. Those of the global step that need no op of the
                step become its value from before the step.
        """
        if self.plan is None:  # a call of another thread has ended the idle stretch
            hook_schedule.skip(self._hooks, 1)
            return True
        trained = self.trained + 1
        for place in self._places:
            # The kernel that reads it may run before or after the one that adds.
            if raw[place] != self.trained:
                if self._global_step.trained() != trained:
                    return False
                if place in self._early_places:
                    raw[place] = type(raw[place])(self.trained)
        if any(raw[place] != raw[place] for place in self._loss_places):  # NaN
            return False
        if self._clock() >= self._deadline:
            return False
        self.trained = trained
        self._passed += 1
        return True

    def interrupt(self) -> None:
        """End the idle stretch, if there is one, for a step that the hooks will see."""
        self.end()
        self._was_due, self._is_due = self._is_due, True

    def end(self) -> None:
        """End the stretch, and make the hooks count the steps that they did not see."""
        if self.plan is not None:
            self.plan = None
            self._is_due = True
            hook_schedule.skip(self._hooks, self._passed)


def _obstacle(hooks: Sequence[Any]) -> str | None:
    """Return the reason why hooks have to see every step, or None."""
    names = {type(hook).__name__ for hook in hooks if not _can_wait(hook)}
    if names:
        return f"must be seen by {', '.join(sorted(names))}"
    for i, hook in enumerate(hooks):
        if any(hook is other for other in hooks[:i]):  # it counts each step twice
            return f"is seen twice by one {type(hook).__name__}"
    return None


def _can_wait(hook: Any) -> bool:
    """Return whether it is known at which steps a hook does nothing."""
    schedule = hook_schedule.schedule_of(hook)
    if schedule is None or schedule.is_passive:
        return schedule is not None
    if not hook_schedule.is_itself(hook):
        return False
    if schedule.is_nan_watch:
        return isinstance(hook._loss_tensor, tf.Tensor)
    timer: Any = getattr(hook, "_timer", None)
    if type(timer) is tf_hooks.SecondOrStepTimer:
        return schedule.by_clock or timer._every_secs is None
    return timer is None or type(timer) is tf_hooks.NeverTriggerTimer


def _deadline(hook: Any) -> float:
    """Return the time at which a hook is due by the clock; infinity if it never is."""
    timer: Any = getattr(hook, "_timer", None)
    schedule = hook_schedule.schedule_of(hook)
    by_clock = schedule is not None and schedule.by_clock
    if not by_clock or getattr(timer, "_every_secs", None) is None:
        return math.inf
    last = timer._last_triggered_time
    return -math.inf if last is None else last + timer._every_secs
