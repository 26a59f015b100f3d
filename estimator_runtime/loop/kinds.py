"""What is known of each kind of hook: when it acts, and what it counts in between."""

import dataclasses
from collections.abc import Callable

from tensorflow.python.training import basic_session_run_hooks

from estimator_runtime.hooks import STEP_METHODS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """What a class of hooks needs.

    Attributes:
        until_due: Steps until one that the hook must see, of (hook, global step).
        skip: Lets the hook count steps that it does not see, of (hook, steps).
        fetches: Tensors that the hook asks for at some steps only, of (hook).
        can_wait: Whether a hook of the class itself does nothing until it is due, but
            for looking at what it fetches.
        by_clock: Whether it asks its timer after a step, and so may go by the clock.
        is_passive: Whether the hook does nothing at any step.
        is_nan_watch: Whether all that it does is to look whether a loss is NaN.
    """

    until_due: Callable
    skip: Callable = lambda hook, steps: None
    fetches: Callable = lambda hook: ()
    can_wait: bool = False
    by_clock: bool = False
    is_passive: bool = False
    is_nan_watch: bool = False


def kind_of(hook):
    """Give what is known of a hook, by the methods that it really has."""
    cls = type(hook)
    if not STEP_METHODS.isdisjoint(getattr(hook, "__dict__", ())):  # set on the hook
        return None
    before, after = (getattr(cls, name, None) for name in ("before_run", "after_run"))
    return _KINDS.get((_owner(before), _owner(after)))


def is_itself(hook):
    """Tell whether a hook is of a class of the table, and not of one derived of it."""
    name = f"{type(hook).__module__}.{type(hook).__qualname__}"
    return name in _BY_CLASS or name in _OWN


def _owner(method):
    """Name the class that defines a method; a callable of another kind has none."""
    if hasattr(method, "__wrapped__"):  # bears the name of what it wraps
        return ""
    qualified = getattr(method, "__qualname__", "")
    return f"{getattr(method, '__module__', '')}.{qualified.rpartition('.')[0]}"


def _until(timer, count):
    """Steps until a SecondOrStepTimer, asked with `count` next, triggers.

    None if it goes by the clock: asked at the end of each run, it triggers then.
    """
    if timer is None or type(timer) is basic_session_run_hooks.NeverTriggerTimer:
        return None
    if type(timer) is not basic_session_run_hooks.SecondOrStepTimer:
        return 1  # the program's own: nothing is known of it
    every_steps = timer._every_steps
    if every_steps is None:
        return None
    last = timer.last_triggered_step()
    return 1 if last is None else last + every_steps - count + 1


def _skip_to_next_step(hook, steps):
    if hook._next_step is not None:
        hook._next_step += steps


def _skip_reads(hook, steps):
    # What a step fetches may be from before it adds 1, or from after. One less than the
    # most that it can be: to the hook, an equal one is a step that did not count.
    if hook._last_global_step is not None and steps:
        hook._last_global_step += steps - 1


def _skip_iterations(hook, steps):
    hook._iter_count += steps


def _at_next_step(hook, global_step):
    # Until their first step these have no next one.
    return 1 if hook._next_step is None else _until(hook._timer, hook._next_step)


def _global_step_timer(hook, global_step):
    # These ask their timer for the step count after the step.
    return _until(hook._timer, global_step + 1)


_TENSORFLOW = "tensorflow.python.training.basic_session_run_hooks."
_PASSIVE = "tensorflow.python.training.session_run_hook.SessionRunHook"
_SAVER = f"{_TENSORFLOW}CheckpointSaverHook"
_STEP_COUNTER = f"{_TENSORFLOW}StepCounterHook"
_STEP_RATE = "estimator_runtime.hooks.step_rate.StepRateHook"
_EARLY_STOPPING = "tensorflow_estimator.python.estimator.early_stopping."

# Class that defines before_run and after_run to what its hooks need.
_BY_CLASS = {
    _PASSIVE: Kind(until_due=lambda hook, step: None, is_passive=True),
    f"{_TENSORFLOW}StopAtStepHook": Kind(
        until_due=lambda hook, step: hook._last_step - step, can_wait=True
    ),
    f"{_TENSORFLOW}NanTensorHook": Kind(
        until_due=lambda hook, step: 1, can_wait=True, is_nan_watch=True
    ),
    _SAVER: Kind(until_due=_global_step_timer, can_wait=True, by_clock=True),
    _STEP_COUNTER: Kind(until_due=_global_step_timer, skip=_skip_reads, can_wait=True),
    f"{_TENSORFLOW}LoggingTensorHook": Kind(
        until_due=lambda hook, step: _until(hook._timer, hook._iter_count),
        skip=_skip_iterations,
        fetches=lambda hook: hook._current_tensors.values(),
        can_wait=True,
    ),
    f"{_TENSORFLOW}SummarySaverHook": Kind(
        until_due=_at_next_step,
        skip=_skip_to_next_step,
        fetches=lambda hook: hook._get_summary_op() or (),
        can_wait=True,
    ),
    f"{_TENSORFLOW}ProfilerHook": Kind(
        until_due=_at_next_step, skip=_skip_to_next_step
    ),
    # Asks its timer for the step count that it has fetched, from before the step or
    # from after it.
    f"{_EARLY_STOPPING}_StopOnPredicateHook": Kind(
        until_due=lambda hook, step: _until(hook._timer, step + 1)
    ),
    f"{_EARLY_STOPPING}_CheckForStoppingHook": Kind(
        until_due=lambda hook, step: None,
        fetches=lambda hook: (hook._stop_var,),
    ),
}
# This runtime's own, of the same kinds. A write of a checkpoint that ends while hooks
# wait needs nothing of this thread: if it has failed, the next save raises that.
_OWN = {"estimator_runtime.checkpoint.hook.CheckpointHook", _STEP_RATE}
_KINDS = {(name, name): kind for name, kind in _BY_CLASS.items()}
# It prepares its read of the global step, and calls TensorFlow's.
_KINDS[_STEP_COUNTER, _STEP_RATE] = _BY_CLASS[_STEP_COUNTER]
# Evaluates after a step, and counts before it asks its timer.
_EVALUATOR = "tensorflow_estimator.python.estimator.hooks.hooks.InMemoryEvaluatorHook"
_KINDS[_PASSIVE, _EVALUATOR] = Kind(
    until_due=lambda hook, step: _until(hook._timer, hook._iter_count + 1),
    skip=_skip_iterations,
)
# Waits before the first step only.
_KINDS[f"{_TENSORFLOW}GlobalStepWaiterHook", _PASSIVE] = _BY_CLASS[_PASSIVE]
