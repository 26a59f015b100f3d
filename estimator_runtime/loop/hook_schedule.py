"""When each hook next has to see a step, so that the steps before it may be fused.

TensorFlow's own hooks act at some steps and only wait at the others. Their timers show
when they act next. A hook of any other class must see every step, unless it declares
otherwise with a method:

    def steps_until_due(self, global_step):
        # 1 if the next step must be seen, 2 for the one after, None if any will do

`global_step` is the number of steps trained so far. Such a hook is called once for each
run of steps, after the last step of the run, which is at the latest the step that it
named. The clock decides how many steps a run has (see `run_length`). The hook may fetch
what the caller fetches, the global step, and the tensors that its attribute
`fused_fetches` lists. It must not feed anything. If a NaN ends a run before its last
step, the hook is called only on two conditions: it asks for the same fetches again, and
all of them belong to the step.

A hook of this runtime may be derived from one of TensorFlow's and need to see the same
steps. It names that class in its attribute `scheduled_as`, which holds for the class
itself and not for classes derived from it: those may do anything.

TensorFlow's own hooks wait through most steps: they fetch the global step or the loss,
look at the value, and do nothing else. If a session has only such hooks, the next step
at which one of them acts is known. Until then, `IdleHooks` checks the same values in
their place, as the step has fetched them. If a value is not the expected one, the hooks
are called for that step as for any other. That happens if a loss is NaN, if the program
has changed the global step, or if a checkpoint is due by the clock.

Any other hook has to see every step, even a subclass or one with a timer of the
program's own. If there is one, all hooks see every step. A hook that only initializes
does not count, because it has nothing to see.

A sequence of such steps is an idle stretch. It belongs to one thread. A call of another
thread, which the hooks see, ends it. If a step of the stretch is under way then, the
hooks see that step too when it is done.
"""

import dataclasses
import math
import numbers
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.global_step import GlobalStep
from estimator_runtime.loop.plan import Plan, key_of
from estimator_runtime.tf_internals import internals
from estimator_runtime.tf_internals.internals import STEP_METHODS

_TENSORFLOW = "tensorflow.python.training.basic_session_run_hooks."
_PASSIVE = "tensorflow.python.training.session_run_hook.SessionRunHook"
_SAVER = f"{_TENSORFLOW}CheckpointSaverHook"
_STEP_COUNTER = f"{_TENSORFLOW}StepCounterHook"
_EARLY_STOPPING = "tensorflow_estimator.python.estimator.early_stopping."
# Evaluates after a step. It increments its count before it asks its timer.
_EVALUATOR = "tensorflow_estimator.python.estimator.hooks.hooks.InMemoryEvaluatorHook"


def until_due(
    hooks: Iterable[Any], global_step: int, watches_nan: bool = False
) -> int | None:
    """Return the number of steps until one that some hook must see.

    Args:
        hooks: The hooks of a session.
        global_step: The number of steps trained so far.
        watches_nan: Whether the caller ends the run of steps at a NaN in any of
            `watched_losses`. The hooks that watch them need not see a step before.

    Returns:
        1 if the next step is such a step; None if no hook must see any.

    Raises:
        ConfigError: If a hook's `steps_until_due` does not return a number of steps.
    """
    due = until_each_due(hooks, global_step, watches_nan)
    return min((steps for steps in due if steps is not None), default=None)


def until_each_due(
    hooks: Iterable[Any], global_step: int, watches_nan: bool = False
) -> list[int | None]:
    """Return for each of `hooks` what `until_due` returns for all of them."""
    due = [_until_due(hook, global_step, watches_nan) for hook in hooks]
    return [None if steps is None else max(1, steps) for steps in due]


def skip(hooks: Iterable[Any], steps: int) -> None:
    """Make `hooks` count steps that they will not see.

    Args:
        hooks: The hooks of a session.
        steps: How many; a negative number takes back steps counted before.
    """
    for hook in hooks:
        schedule = schedule_of(hook)
        if schedule is not None:
            schedule.skip(hook, steps)


def fetches(hooks: Iterable[Any]) -> list[Any]:
    """Return what `hooks` may fetch at the steps at which they are due.

    The global step and `watched_losses`, which many fetch, are not among it.
    """
    wanted: list[Any] = []
    for hook in hooks:
        schedule = schedule_of(hook)
        declared = getattr(hook, "fused_fetches", ())
        wanted.extend(declared if schedule is None else schedule.fetches(hook))
    return wanted


def watched_losses(hooks: Iterable[Any]) -> list[Any]:
    """Return what hooks that do nothing else watch for NaN: tensors, or their names."""
    pairs = ((hook, schedule_of(hook)) for hook in hooks)
    return [hook._loss_tensor for hook, each in pairs if each and each.is_nan_watch]


def every_step_hooks(hooks: Iterable[Any]) -> list[str]:
    """Return the class names of the hooks that must see every step, sorted."""
    return sorted(
        {
            type(hook).__name__
            for hook in hooks
            if schedule_of(hook) is None and not hasattr(hook, "steps_until_due")
        }
    )


def _until_due(hook: Any, global_step: int, watches_nan: bool) -> int | None:
    """Return the number of steps until a hook is due, which may be less than 1."""
    schedule = schedule_of(hook)
    if schedule is not None:
        if watches_nan and schedule.is_nan_watch:
            return None
        return schedule.until_due(hook, global_step)
    declared = getattr(hook, "steps_until_due", None)
    if declared is None:
        return 1
    steps = declared(global_step)
    is_count = isinstance(steps, numbers.Integral) and not isinstance(steps, bool)
    if steps is None or (is_count and steps >= 1):
        return steps
    raise ConfigError(
        f"{type(hook).__name__}.steps_until_due({global_step}) is {steps!r}; use 1 for "
        "the next step, 2 for the one after, ..., or None if any will do"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookSchedule:
    """What a class of hooks needs.

    Attributes:
        until_due: Takes the hook and the global step. Returns the number of steps until
            one that the hook must see, or None.
        skip: Takes the hook and a number of steps. Makes the hook count steps that it
            does not see.
        fetches: Takes the hook. Returns all that it fetches but the global step, and
            what it watches for NaN.
        can_wait: Whether a hook of the class itself does nothing until it is due,
            except to look at what it fetches.
        by_clock: Whether the hook asks its timer after a step, and so may be due by
            the clock.
        is_passive: Whether the hook does nothing at any step.
        is_nan_watch: Whether the hook only checks whether a loss is NaN.
    """

    until_due: Callable[[Any, int], int | None]
    skip: Callable[[Any, int], None] = lambda hook, steps: None
    fetches: Callable[[Any], Iterable[Any]] = lambda hook: ()
    can_wait: bool = False
    by_clock: bool = False
    is_passive: bool = False
    is_nan_watch: bool = False


def schedule_of(hook: Any) -> HookSchedule | None:
    """Return the schedule of a hook, by the methods that it really has.

    Returns:
        The schedule; None if the table of this module does not know it.
    """
    # An instance whose own attributes replace the methods may do anything.
    if not STEP_METHODS.isdisjoint(getattr(hook, "__dict__", ())):
        return None
    cls = type(hook)
    return _SCHEDULES.get((_owner(cls, "before_run"), _owner(cls, "after_run")))


def is_itself(hook: Any) -> bool:
    """Return whether a hook's class is in the table itself, not only a base of it.

    A class that is `scheduled_as` another counts as that one.
    """
    cls = type(hook)
    return _name_of(cls) in _BY_CLASS or "scheduled_as" in vars(cls)


def _name_of(cls: type) -> str:
    """Return the full name of a class, as the table has it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _owner(cls: type, name: str) -> str:
    """Return the full name of the class that defines a method of `cls`.

    A class that is `scheduled_as` another counts as that one. A callable that is not a
    plain method has no such class: the result is "" or a name that is in no table.
    """
    method = getattr(cls, name, None)
    if hasattr(method, "__wrapped__"):  # it has the name of the function it wraps
        return ""
    definer: Any = next((each for each in cls.__mro__ if name in vars(each)), cls)
    if "scheduled_as" in vars(definer):
        return _name_of(definer.scheduled_as)
    qualified = getattr(method, "__qualname__", "")
    return f"{getattr(method, '__module__', '')}.{qualified.rpartition('.')[0]}"


def _until(timer: Any, count: int) -> int | None:
    """Return the number of steps until a timer, or None, triggers.

    `count` is the step count with which the hook asks the timer next. The result is
    None if the timer never triggers, or goes by the clock: the hook asks such a timer
    at the end of each run, and it triggers then.
    """
    if timer is None or type(timer) is internals.NeverTriggerTimer:
        return None
    if type(timer) is not internals.SecondOrStepTimer:
        return 1  # the program's own timer may trigger at any step
    every_steps = timer._every_steps
    if every_steps is None:
        return None
    last = timer.last_triggered_step()
    return 1 if last is None else last + every_steps - count + 1


def _skip_to_next_step(hook: Any, steps: int) -> None:
    """Make a hook that counts in `_next_step` count skipped steps."""
    if hook._next_step is not None:
        hook._next_step += steps


def _skip_reads(hook: Any, steps: int) -> None:
    """Make a hook that remembers the global step it read last count skipped steps."""
    # A step may fetch the global step before or after its increment. Use one less than
    # the greatest possible value: if the hook reads the same value again, it takes the
    # step for one that did not count.
    if hook._last_global_step is not None and steps:
        hook._last_global_step += steps - 1


def _skip_iterations(hook: Any, steps: int) -> None:
    """Make a hook that counts in `_iter_count` count skipped steps."""
    hook._iter_count += steps


def _at_next_step(hook: Any, global_step: int) -> int | None:
    """Return the steps until a hook is due that counts in `_next_step`."""
    # Before their first step, these hooks have no next step.
    return 1 if hook._next_step is None else _until(hook._timer, hook._next_step)


def _global_step_timer(hook: Any, global_step: int) -> int | None:
    """Return the steps until a hook is due that asks its timer for the global step."""
    # These hooks ask with the global step after the increment.
    return _until(hook._timer, global_step + 1)


# The class that defines `before_run` and `after_run`, to what its hooks need.
_BY_CLASS = {
    _PASSIVE: HookSchedule(until_due=lambda hook, step: None, is_passive=True),
    f"{_TENSORFLOW}StopAtStepHook": HookSchedule(
        until_due=lambda hook, step: hook._last_step - step, can_wait=True
    ),
    f"{_TENSORFLOW}NanTensorHook": HookSchedule(
        until_due=lambda hook, step: 1, can_wait=True, is_nan_watch=True
    ),
    _SAVER: HookSchedule(until_due=_global_step_timer, can_wait=True, by_clock=True),
    _STEP_COUNTER: HookSchedule(
        until_due=_global_step_timer, skip=_skip_reads, can_wait=True
    ),
    f"{_TENSORFLOW}LoggingTensorHook": HookSchedule(
        until_due=lambda hook, step: _until(hook._timer, hook._iter_count),
        skip=_skip_iterations,
        fetches=lambda hook: hook._current_tensors.values(),
        can_wait=True,
    ),
    f"{_TENSORFLOW}SummarySaverHook": HookSchedule(
        until_due=_at_next_step,
        skip=_skip_to_next_step,
        fetches=lambda hook: hook._get_summary_op() or (),
        can_wait=True,
    ),
    f"{_TENSORFLOW}ProfilerHook": HookSchedule(
        until_due=_at_next_step, skip=_skip_to_next_step
    ),
    # Asks its timer with the global step that it has fetched, which a step may read
    # before or after its increment.
    f"{_EARLY_STOPPING}_StopOnPredicateHook": HookSchedule(
        until_due=lambda hook, step: _until(hook._timer, step + 1)
    ),
    f"{_EARLY_STOPPING}_CheckForStoppingHook": HookSchedule(
        until_due=lambda hook, step: None,
        fetches=lambda hook: (hook._stop_var,),
    ),
}


_SCHEDULES = {(name, name): schedule for name, schedule in _BY_CLASS.items()}


_SCHEDULES[_PASSIVE, _EVALUATOR] = HookSchedule(
    until_due=lambda hook, step: _until(hook._timer, hook._iter_count + 1),
    skip=_skip_iterations,
)


# It waits before the first step only.
_SCHEDULES[f"{_TENSORFLOW}GlobalStepWaiterHook", _PASSIVE] = _BY_CLASS[_PASSIVE]


class IdleHooks:
    """The single steps until one that some hook has to see.

    Args:
        hooks: The hooks of a session.
        clock: Returns the time in seconds, by the clock of the hooks' timers.

    Attributes:
        is_possible: Whether there can be an idle stretch with these hooks.
        plan: The plan of every step of the stretch; None outside one.
        results: Turns raw values of the plan into the caller's results.
    """

    def __init__(
        self, hooks: Sequence[Any], clock: Callable[[], float] = internals.current
    ) -> None:
        distinct = len({id(hook) for hook in hooks}) == len(hooks)
        self.is_possible = bool(hooks) and distinct and all(map(_can_wait, hooks))
        self.plan: Plan | None = None
        self.results: Any = None
        self._hooks = hooks
        self._clock = clock
        self._is_due = self._was_due = True  # whether a hook has to see the step
        self._made_for: Any = None  # the plan, and the key of the fetches of `results`
        self._steps = self._passed = self._trained = 0
        self._deadline = math.inf
        self._thread: int | None = None
        self._read_step: Any = None
        self._places: tuple[int, ...] = ()
        self._early_places: tuple[int, ...] = ()
        self._loss_places: tuple[int, ...] = ()

    def forbid(self) -> None:
        """Make hooks see every step from now on."""
        self.is_possible = False

    def interrupt(self) -> None:
        """End the idle stretch, if there is one, for a step that the hooks will see."""
        self.end()
        self._was_due, self._is_due = self._is_due, True

    def begin(
        self, plan: Plan, global_step: GlobalStep, fetches: Any, raw: Sequence[Any]
    ) -> None:
        """Begin an idle stretch, if possible, after a step that the hooks have seen.

        Args:
            plan: The plan of that step, which adds 1 to the global step.
            global_step: The global step of the session.
            fetches: What the caller asks for.
            raw: Raw values of the plan.
        """
        losses = {loss.name for loss in watched_losses(self._hooks)}
        places = plan.places_of(global_step.reads)
        loss_places = plan.places_of(losses)
        if not places or len(loss_places) < len(losses):
            return
        trained = global_step.trained()
        if not {0, 1}.issuperset(trained - raw[place] for place in places):
            return  # the program has changed it too
        due = until_due(self._hooks, trained, watches_nan=True)
        steps = sys.maxsize if due is None else due - 1
        self._is_due = steps < 1
        # A step that was due may have fetched more than the next steps will.
        if self._was_due or self._is_due:
            return
        key = key_of(fetches)
        if self._made_for != (plan, key):
            self._made_for = plan, key
            self.results = plan.results_of(fetches)
        self.plan = plan
        self._thread = threading.get_ident()
        self._read_step = global_step.trained
        self._places, self._loss_places = places, loss_places
        self._early_places = plan.places_of(global_step.early)
        self._steps, self._passed, self._trained = steps, 0, trained
        self._deadline = min(map(_deadline, self._hooks))

    def covers(self, fetches: Any) -> bool:
        """Return whether the next step, which asks for `fetches`, is in the stretch."""
        if not self._is_here() or self._passed >= self._steps:
            return False
        return key_of(fetches) == self._made_for[1]

    def passes(self, raw: list[Any]) -> bool:
        """Return whether a step had the expected values, and count it if so.

        If the result is False, the hooks must see the step.

        Args:
            raw: Raw values of the plan. Those of the global step that need no op of the
                step become its value from before the step.
        """
        if not self._is_here():
            return False  # a call of another thread has ended the idle stretch
        trained = self._trained + 1
        for place in self._places:
            # The kernel that reads it may run before or after the one that adds.
            if raw[place] != self._trained:
                if self._read_step() != trained:
                    return False
                if place in self._early_places:
                    raw[place] = type(raw[place])(self._trained)
        for place in self._loss_places:
            loss = raw[place]
            if loss != loss:  # NaN
                return False
        if self._clock() >= self._deadline:
            return False
        self._trained = trained
        self._passed += 1
        return True

    def _is_here(self) -> bool:
        """Return whether there is a stretch that belongs to the calling thread."""
        return self.plan is not None and self._thread == threading.get_ident()

    def end(self) -> None:
        """End the stretch, and make the hooks count the steps that they did not see."""
        if self.plan is not None:
            self.plan = None
            self._is_due = True
            skip(self._hooks, self._passed)


def _can_wait(hook: Any) -> bool:
    """Return whether it is known at which steps a hook does nothing."""
    schedule = schedule_of(hook)
    if schedule is None or schedule.is_passive:
        return schedule is not None
    if not schedule.can_wait or not is_itself(hook):
        return False
    if schedule.is_nan_watch:
        return isinstance(hook._loss_tensor, tf.Tensor)
    timer: Any = getattr(hook, "_timer", None)
    if type(timer) is internals.SecondOrStepTimer:
        return schedule.by_clock or timer._every_secs is None
    return timer is None or type(timer) is internals.NeverTriggerTimer


def _deadline(hook: Any) -> float:
    """Return the time at which a hook is due by the clock; infinity if it never is."""
    timer: Any = getattr(hook, "_timer", None)
    schedule: Any = schedule_of(hook)  # with an unknown hook there is no stretch
    if not schedule.by_clock or getattr(timer, "_every_secs", None) is None:
        return math.inf
    last = timer._last_triggered_time
    return -math.inf if last is None else last + timer._every_secs
