"""When each hook next has to see a step, so that the steps before it may be fused.

TensorFlow's own hooks act at some steps and only wait through the others: when they
act next can be told from their timers. A hook of any other class must see every step,
unless it says otherwise. It may have

    def steps_until_due(self, global_step):
        # 1 if the next step must be seen, 2 for the one after, None if any will do

where `global_step` is the number of steps trained so far. It is then called once for
each run of steps, after the last of them, which is at the latest the one it named. It
may fetch what the caller fetches, the global step, and the tensors that its attribute
`fused_fetches` lists; it may feed nothing. If a NaN ends a run before its last step, it
is called only if it asks again for the same, and all of that belongs to the step.
"""

import dataclasses
import numbers
from collections.abc import Callable

from tensorflow.python.training import basic_session_run_hooks

from estimator_runtime.errors import ConfigError

# What a hook is called by at each step; one that has its own is of no known kind.
METHODS = {"before_run", "after_run"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kind:
    """What a class of hooks needs.

    Attributes:
        until_due: Steps until one that the hook must see, of (hook, global step).
        skip: Lets the hook count steps that it does not see, of (hook, steps).
        fetches: Tensors that the hook asks for at some steps only, of (hook).
    """

    until_due: Callable
    skip: Callable = lambda hook, steps: None
    fetches: Callable = lambda hook: ()


def until_due(hooks, global_step, loss=None):
    """Give the number of steps until one that some hook must see.

    Args:
        hooks: The hooks of a session.
        global_step: Steps trained so far.
        loss: The tensor at whose NaN the run of steps ends by itself, or None.

    Returns:
        1 if the next step is such a step; None if no hook must see any.

    Raises:
        ConfigError: If a hook's `steps_until_due` gives no number of steps.
    """
    due = until_each_due(hooks, global_step, loss)
    return min((steps for steps in due if steps is not None), default=None)


def until_each_due(hooks, global_step, loss=None):
    """Give for each of `hooks` what `until_due` gives for all."""
    due = [_until_due(hook, global_step, loss) for hook in hooks]
    return [None if steps is None else max(1, steps) for steps in due]


def skip(hooks, steps):
    """Let `hooks` count `steps` that they will not see."""
    for hook in hooks:
        kind = _kind(hook)
        if kind is not None:
            kind.skip(hook, steps)


def fetches(hooks):
    """Give the tensors that `hooks` may ask for at steps they are due."""
    wanted: list = []
    for hook in hooks:
        kind = _kind(hook)
        declared = getattr(hook, "fused_fetches", ())
        wanted.extend(declared if kind is None else kind.fetches(hook))
    return wanted


def watched_loss(hook):
    """Give the tensor that a hook watches for NaN only; None if it does more."""
    return hook._loss_tensor if _kind(hook) is _BY_CLASS[_NAN] else None


def every_step_hooks(hooks):
    """Give the class names of the hooks that must see every step, for a log line."""
    return sorted(
        {
            type(hook).__name__
            for hook in hooks
            if _kind(hook) is None and not hasattr(hook, "steps_until_due")
        }
    )


def is_known(hook):
    """Tell whether it is known what a hook does at a step."""
    return _kind(hook) is not None


def is_passive(hook):
    """Tell whether a hook does nothing at a step, such as one that only initializes."""
    return _kind(hook) is _BY_CLASS[_PASSIVE]


def _until_due(hook, global_step, loss):
    kind = _kind(hook)
    if kind is not None:
        if loss is not None and watched_loss(hook) is loss:
            return None
        return kind.until_due(hook, global_step)
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


def _kind(hook):
    """Give what is known of a hook, by the methods that it really has."""
    cls = type(hook)
    if not METHODS.isdisjoint(getattr(hook, "__dict__", ())):  # set on the hook
        return None
    before, after = (getattr(cls, name, None) for name in ("before_run", "after_run"))
    return _KINDS.get((_owner(before), _owner(after)))


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
_NAN = f"{_TENSORFLOW}NanTensorHook"
_EARLY_STOPPING = "tensorflow_estimator.python.estimator.early_stopping."

# Class that defines before_run and after_run to what its hooks need.
_BY_CLASS = {
    _PASSIVE: _Kind(until_due=lambda hook, step: None),
    f"{_TENSORFLOW}StopAtStepHook": _Kind(
        until_due=lambda hook, step: hook._last_step - step
    ),
    _NAN: _Kind(until_due=lambda hook, step: 1),
    f"{_TENSORFLOW}CheckpointSaverHook": _Kind(until_due=_global_step_timer),
    f"{_TENSORFLOW}StepCounterHook": _Kind(
        until_due=_global_step_timer, skip=_skip_reads
    ),
    f"{_TENSORFLOW}LoggingTensorHook": _Kind(
        until_due=lambda hook, step: _until(hook._timer, hook._iter_count),
        skip=_skip_iterations,
        fetches=lambda hook: hook._current_tensors.values(),
    ),
    f"{_TENSORFLOW}SummarySaverHook": _Kind(
        until_due=_at_next_step,
        skip=_skip_to_next_step,
        fetches=lambda hook: hook._get_summary_op() or (),
    ),
    f"{_TENSORFLOW}ProfilerHook": _Kind(
        until_due=_at_next_step, skip=_skip_to_next_step
    ),
    # Asks its timer for the step count that it has fetched, from before the step or
    # from after it.
    f"{_EARLY_STOPPING}_StopOnPredicateHook": _Kind(
        until_due=lambda hook, step: _until(hook._timer, step + 1)
    ),
    f"{_EARLY_STOPPING}_CheckForStoppingHook": _Kind(
        until_due=lambda hook, step: None,
        fetches=lambda hook: (hook._stop_var,),
    ),
}
_KINDS = {(name, name): kind for name, kind in _BY_CLASS.items()}
# This runtime's own is TensorFlow's, which prepares its read of the global step.
_KINDS[
    f"{_TENSORFLOW}StepCounterHook", "estimator_runtime.hooks.step_rate.StepRateHook"
] = _BY_CLASS[f"{_TENSORFLOW}StepCounterHook"]
# Evaluates after a step, and counts before it asks its timer.
_EVALUATOR = "tensorflow_estimator.python.estimator.hooks.hooks.InMemoryEvaluatorHook"
_KINDS[_PASSIVE, _EVALUATOR] = _Kind(
    until_due=lambda hook, step: _until(hook._timer, hook._iter_count + 1),
    skip=_skip_iterations,
)
# Waits before the first step only.
_KINDS[f"{_TENSORFLOW}GlobalStepWaiterHook", _PASSIVE] = _BY_CLASS[_PASSIVE]
