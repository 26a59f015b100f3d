"""How often checkpoints are saved where that follows what they cost.

CheckFreq (Mohan et al., FAST'21) bounds what checkpoints may cost and lets the interval
follow; so does this, with the cost of the last one.
"""

import logging

from estimator_runtime import option_values, options
from estimator_runtime.errors import ConfigError

_logger = logging.getLogger(__name__)

LEAST_SECS = 10.0
MOST_SECS = 30 * 60.0
# TensorFlow's default, for those that cannot follow anything.
_FIXED_SECS = 600
_ARGUMENTS = ("save_checkpoints_steps", "save_checkpoints_secs")


class CostInterval(float):
    """Seconds from one checkpoint to the next, so that they cost no more than a part.

    It is a number like any other to those who only want one: the least interval at
    first, which is in force until a cost is known.

    Attributes:
        overhead: The part of the wall time that checkpoints may take, above 0, below 1.
    """

    overhead: float

    def __new__(cls, overhead, secs=LEAST_SECS):
        """Make one; `secs` is the interval for now."""
        self = super().__new__(cls, secs)
        self.overhead = overhead
        return self

    def __getnewargs__(self):
        """Give what a copy is made of."""
        return self.overhead, float(self)

    def at_cost(self, secs):
        """Give the interval for checkpoints that cost `secs` each, within bounds."""
        interval = min(max(secs / self.overhead, LEAST_SECS), MOST_SECS)
        return CostInterval(self.overhead, interval)


def for_overhead(overhead):
    """Give the seconds between checkpoints where no interval is asked for.

    Args:
        overhead: The part of the time that checkpoints may take, or None.
    """
    return _FIXED_SECS if overhead is None else CostInterval(overhead)


def of_environ():
    """Give the seconds between checkpoints where only the environment has a say.

    Raises:
        ConfigError: If its overhead cannot be used.
    """
    return for_overhead(options.in_environ("checkpoint_overhead"))


def of_run_config(arguments, overhead):
    """Give the interval, as an argument of RunConfig's, that stands for an overhead.

    Args:
        arguments: Arguments of RunConfig that were given, by name.
        overhead: Its `checkpoint_overhead`; None takes the environment's, if
            `arguments` have no interval.

    Returns:
        Dict with `save_checkpoints_secs`, or empty if there is no overhead.

    Raises:
        ConfigError: If the overhead is out of range, or beside an interval.
    """
    if overhead is None:
        name_unused(arguments)
        if not any(name in arguments for name in _ARGUMENTS):
            overhead = options.in_environ("checkpoint_overhead")
        if overhead is None:
            return {}
    option_values.check_checkpoint_overhead(overhead, "RunConfig: checkpoint_overhead")
    given = [name for name in _ARGUMENTS if arguments.get(name) is not None]
    if given:
        raise ConfigError(
            f"RunConfig: checkpoint_overhead is {overhead!r}, but {given[0]} is given "
            "too; leave one of them out"
        )
    return {"save_checkpoints_secs": for_overhead(overhead)}


def name_unused(arguments):
    """Log an overhead of the environment's over which an interval wins.

    Args:
        arguments: Arguments of RunConfig that were given, by name.
    """
    # Both as None is a choice as well.
    chosen = [name for name in _ARGUMENTS if name in arguments]
    overhead = options.in_environ("checkpoint_overhead") if chosen else None
    if overhead is None:
        return
    told = [name for name in chosen if arguments[name] is not None] or chosen
    _logger.warning(
        "checkpoint_overhead is %s (--checkpoint-overhead, or %s), but the program's "
        "RunConfig has %s, which wins",
        overhead,
        options.CHECKPOINT_OVERHEAD_VARIABLE,
        ", ".join(f"{name}={arguments[name]!r}" for name in told),
    )


def fix(hooks):
    """Let hooks of TensorFlow's whose interval would follow the cost have a fixed one.

    Args:
        hooks: Hooks of a session; those that save by a `CostInterval` are changed.
    """
    for hook in hooks or ():
        timer = getattr(hook, "_timer", None)
        if timer is not None and hasattr(timer, "_every_secs"):
            timer._every_secs = fixed(timer._every_secs)


def fixed(secs):
    """Give an interval that follows nothing, in place of one that does."""
    return _FIXED_SECS if isinstance(secs, CostInterval) else secs
