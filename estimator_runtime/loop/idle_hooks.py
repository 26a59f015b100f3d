"""Stretches of steps at which no hook would do anything, so that none is called.

TensorFlow's own hooks wait through most steps: they fetch the global step or the loss,
look at it, and go on. With these hooks alone, the step at which one of them acts next
is known. Until then, what they would look at is watched for them, in the very values
that the step fetched for them. If it is not what was foreseen, because a loss is NaN,
the program has changed the global step, or a checkpoint's time has come, they are
called for that step as for any other.

Any other hook among them, a subclass or a timer of the program's own included, has to
see every step; then so do all. But one that only initializes has nothing to see.

A lull is of one thread. A call of another one, which hooks see, ends it: also for the
step that is under way, which they then see when it is done.
"""

import math
import sys
import threading
from typing import Any

import tensorflow as tf
from tensorflow.python.training import basic_session_run_hooks

from estimator_runtime.compat import timers
from estimator_runtime.loop import cadence
from estimator_runtime.loop.kinds import is_itself, kind_of
from estimator_runtime.loop.plan import CannotPlan, structure


class Lull:
    """The single steps until one that some hook has to see.

    Args:
        hooks: The hooks of a session.
        clock: Gives seconds, by the clock that hooks go by.

    Attributes:
        is_possible: Whether there can be one with these hooks.
        plan: `Plan` of every step of it; None while there is none.
        results: Gives the caller's results, of raw values of the plan.
    """

    def __init__(self, hooks, clock=timers.current):
        distinct = len({id(hook) for hook in hooks}) == len(hooks)
        self.is_possible = bool(hooks) and distinct and all(map(_can_wait, hooks))
        self.plan: Any = None
        self.results: Any = None
        self._hooks = hooks
        self._clock = clock
        self._is_due = self._was_due = True  # whether a hook has to see the step
        self._made_for: Any = None  # the plan and the key of what `results` gives
        self._steps = self._passed = self._trained = 0
        self._deadline = math.inf
        self._thread: int | None = None
        self._read_step: Any = None
        self._places: tuple = ()
        self._loss_places: tuple = ()

    def forbid(self):
        """Let hooks see every step from here on."""
        self.is_possible = False

    def interrupt(self):
        """End it, if there is one, for a step that the hooks will see."""
        self.end()
        self._was_due, self._is_due = self._is_due, True

    def begin(self, plan, global_step, fetches, raw):
        """Begin one, if it can be, after a step that the hooks have seen.

        Args:
            plan: `Plan` of that step, which adds 1 to the global step.
            global_step: `GlobalStep` of the session.
            fetches: What the caller asks for.
            raw: Raw values that the plan gave.
        """
        watched = [cadence.watched_loss(hook) for hook in self._hooks]
        losses = {loss.name for loss in watched if loss is not None}
        places = plan.places_of(global_step.reads)
        loss_places = plan.places_of(losses)
        if not places or len(loss_places) < len(losses):
            return
        trained = global_step.trained()
        if not {0, 1}.issuperset(trained - raw[place] for place in places):
            return  # something else has changed it
        pairs = zip(self._hooks, watched, strict=True)
        due = cadence.until_due([h for h, loss in pairs if loss is None], trained)
        steps = sys.maxsize if due is None else due - 1
        self._is_due = steps < 1
        # A step that was due may have fetched more than the ones to come will.
        if self._was_due or self._is_due:
            return
        key = structure(fetches)
        if self._made_for != (plan, key):
            self._made_for = plan, key
            self.results = plan.results_of(fetches)
        self.plan = plan
        self._thread = threading.get_ident()
        self._read_step = global_step.trained
        self._places, self._loss_places = places, loss_places
        self._steps, self._passed, self._trained = steps, 0, trained
        self._deadline = min(map(_deadline, self._hooks))

    def covers(self, fetches):
        """Tell whether the next step, which asks for `fetches`, is one of them."""
        if not self._is_here() or self._passed >= self._steps:
            return False
        try:
            return structure(fetches) == self._made_for[1]
        except CannotPlan:
            return False

    def passes(self, raw):
        """Tell whether a step was as foreseen, and count it; if not, hooks must see it.

        Args:
            raw: Raw values that the plan gave.
        """
        if not self._is_here():
            return False  # another thread's call has ended it meanwhile
        trained = self._trained + 1
        for place in self._places:
            # The kernel that reads it may run before the one that adds, or after.
            if raw[place] != self._trained and self._read_step() != trained:
                return False
        for place in self._loss_places:
            loss = raw[place]
            if loss != loss:  # NaN
                return False
        if self._clock() >= self._deadline:
            return False
        self._trained = trained
        self._passed += 1
        return True

    def _is_here(self):
        return self.plan is not None and self._thread == threading.get_ident()

    def end(self):
        """Let the hooks count the steps that they have not seen."""
        if self.plan is not None:
            self.plan = None
            self._is_due = True
            cadence.skip(self._hooks, self._passed)


def _can_wait(hook):
    kind = kind_of(hook)
    if kind is None or kind.is_passive:
        return kind is not None
    if not kind.can_wait or not is_itself(hook):
        return False
    if kind.is_nan_watch:
        return isinstance(hook._loss_tensor, tf.Tensor)
    timer: Any = getattr(hook, "_timer", None)
    if type(timer) is basic_session_run_hooks.SecondOrStepTimer:
        return kind.by_clock or timer._every_secs is None
    return timer is None or type(timer) is basic_session_run_hooks.NeverTriggerTimer


def _deadline(hook):
    timer: Any = getattr(hook, "_timer", None)
    if not kind_of(hook).by_clock or getattr(timer, "_every_secs", None) is None:
        return math.inf
    last = timer._last_triggered_time
    return -math.inf if last is None else last + timer._every_secs
