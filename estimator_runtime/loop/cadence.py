"""When each hook next has to see a step, so that the steps before it may be fused.

TensorFlow's own hooks act at some steps and only wait through the others: when they
act next can be told from their timers. A hook of any other class must see every step,
unless it says otherwise. It may have

    def steps_until_due(self, global_step):
        # 1 if the next step must be seen, 2 for the one after, None if any will do

where `global_step` is the number of steps trained so far. It is then called once for
each run of steps, after the last of them, which is at the latest the one it named. The
clock decides how many steps a run has (see `run_length`). The hook may fetch what the
caller fetches, the global step, and the tensors that its attribute `fused_fetches`
lists; it may feed nothing. If a NaN ends a run before its last step, it is called only
if it asks again for the same, and all of that belongs to the step.
"""

import numbers

from estimator_runtime.errors import ConfigError
from estimator_runtime.loop.kinds import kind_of


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
        kind = kind_of(hook)
        if kind is not None:
            kind.skip(hook, steps)


def fetches(hooks):
    """Give the tensors that `hooks` may ask for at steps they are due."""
    wanted: list = []
    for hook in hooks:
        kind = kind_of(hook)
        declared = getattr(hook, "fused_fetches", ())
        wanted.extend(declared if kind is None else kind.fetches(hook))
    return wanted


def watched_loss(hook):
    """Give the tensor that a hook watches for NaN only; None if it does more."""
    kind = kind_of(hook)
    return hook._loss_tensor if kind is not None and kind.is_nan_watch else None


def every_step_hooks(hooks):
    """Give the class names of the hooks that must see every step, for a log line."""
    return sorted(
        {
            type(hook).__name__
            for hook in hooks
            if kind_of(hook) is None and not hasattr(hook, "steps_until_due")
        }
    )


def is_known(hook):
    """Tell whether it is known what a hook does at a step."""
    return kind_of(hook) is not None


def _until_due(hook, global_step, loss):
    kind = kind_of(hook)
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
