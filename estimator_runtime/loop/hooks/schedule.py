"""When each hook next has to see a step, so that the steps before it may be fused.

TensorFlow's own hooks act at some steps and only wait at the others. Their timers show
when they act next. A hook of any other class must see every step.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from estimator_runtime.tf_internals import hooks as tf_hooks
from estimator_runtime.tf_internals.hooks import STEP_METHODS

_TENSORFLOW = "tensorflow.python.training.basic_session_run_hooks."
_PASSIVE = "tensorflow.python.training.session_run_hook.SessionRunHook"
_SAVER = f"{_TENSORFLOW}CheckpointSaverHook"
_STEP_COUNTER = f"{_TENSORFLOW}StepCounterHook"
_EARLY_STOPPING = "tensorflow_estimator.python.estimator.early_stopping."


def until_due(hooks: Iterable[Any], global_step: int) -> int | None:
    """Return the number of steps until one that some hook must see.

    The caller watches for NaN in each of `watched_losses`, so that the hooks that do
    nothing else need not see a step before.

    Args:
        hooks: The hooks of a session.
        global_step: The number of steps trained so far.

    Returns:
        1 if the next step is such a step; None if no hook must see any.
    """
    due = [_until_due(hook, global_step) for hook in hooks]
    return min((max(1, steps) for steps in due if steps is not None), default=None)


def skip(hooks: Iterable[Any], steps: int) -> None:
    """Make `hooks` count steps that they will not see.

    Args:
        hooks: The hooks of a session.
        steps: How many.
    """
    for hook in hooks:
        schedule = schedule_of(hook)
        if schedule is not None:
            schedule.skip(hook, steps)


def watched_losses(hooks: Iterable[Any]) -> list[Any]:
    """Return what hooks that do nothing else watch for NaN: tensors, or their names."""
    pairs = ((hook, schedule_of(hook)) for hook in hooks)
    return [hook._loss_tensor for hook, each in pairs if each and each.is_nan_watch]


def steps_left(hooks: Iterable[Any], global_step: int) -> int | None:
    """Return the number of steps until a hook ends the training; None if unknown."""
    pairs = ((hook, schedule_of(hook)) for hook in hooks)
    left = [e.until_due(hook, global_step) for hook, e in pairs if e and e.is_end]
    return min((each for each in left if each is not None), default=None)


def _until_due(hook: Any, global_step: int) -> int | None:
    """Return the number of steps until a hook is due, which may be less than 1."""
    schedule = schedule_of(hook)
    return 1 if schedule is None else schedule.until_due(hook, global_step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookSchedule:
    """What a class of hooks needs.

    Attributes:
        until_due: Takes the hook and the global step. Returns the number of steps until
            one that the hook must see, or None.
        skip: Takes the hook and a number of steps. Makes the hook count steps that it
            does not see.
        by_clock: Whether the hook asks its timer after a step, and so may be due by
            the clock.
        is_passive: Whether the hook does nothing at any step.
        is_nan_watch: Whether the hook only checks whether a loss is NaN. It is due at
            a step at which it is.
        is_end: Whether the hook ends the training at the step at which it is due.
    """

    until_due: Callable[[Any, int], int | None]
    skip: Callable[[Any, int], None] = lambda hook, steps: None
    by_clock: bool = False
    is_passive: bool = False
    is_nan_watch: bool = False
    is_end: bool = False


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
    """Return whether a hook's class is in the table itself, not only a base of it."""
    cls = type(hook)
    return _name_of(cls) in _BY_CLASS or _is_derived(cls)


def _is_derived(cls: type) -> bool:
    """Return whether a class itself, not only a base of it, is a `DerivedHook`."""
    return "scheduled_as" in vars(cls)


def _name_of(cls: type) -> str:
    """Return the full name of a class, as the table has it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _owner(cls: type, name: str) -> str:
    """Return the full name of the class that defines a method of `cls`.

    A `DerivedHook` counts as the class that it names. A callable that is not a plain
    method has no such class: the result is "" or a name that is in no table.
    """
    method = getattr(cls, name, None)
    if hasattr(method, "__wrapped__"):  # it has the name of the function it wraps
        return ""
    definer: Any = next((each for each in cls.__mro__ if name in vars(each)), cls)
    if _is_derived(definer):
        return _name_of(definer.scheduled_as)
    qualified = getattr(method, "__qualname__", "")
    return f"{getattr(method, '__module__', '')}.{qualified.rpartition('.')[0]}"


def _until(timer: Any, count: int) -> int | None:
    """Return the number of steps until a timer, or None, triggers.

    `count` is the step count with which the hook asks the timer next. The result is
    None if the timer never triggers, or goes by the clock.
    """
    if timer is None or type(timer) is tf_hooks.NeverTriggerTimer:
        return None
    if type(timer) is not tf_hooks.SecondOrStepTimer:
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
        until_due=lambda hook, step: hook._last_step - step, is_end=True
    ),
    f"{_TENSORFLOW}NanTensorHook": HookSchedule(
        until_due=lambda hook, step: None, is_nan_watch=True
    ),
    _SAVER: HookSchedule(until_due=_global_step_timer, by_clock=True),
    _STEP_COUNTER: HookSchedule(until_due=_global_step_timer, skip=_skip_reads),
    f"{_TENSORFLOW}LoggingTensorHook": HookSchedule(
        until_due=lambda hook, step: _until(hook._timer, hook._iter_count),
        skip=_skip_iterations,
    ),
    f"{_TENSORFLOW}SummarySaverHook": HookSchedule(
        until_due=_at_next_step,
        skip=_skip_to_next_step,
    ),
    # Asks its timer with the global step that it has fetched, which a step may read
    # before or after its increment.
    f"{_EARLY_STOPPING}_StopOnPredicateHook": HookSchedule(
        until_due=_global_step_timer, by_clock=True
    ),
}


_SCHEDULES = {(name, name): schedule for name, schedule in _BY_CLASS.items()}
