"""The interval between checkpoints, where it follows what they cost.

CheckFreq (Mohan et al., FAST'21) limits the cost of checkpoints and adapts the interval
to it. This module does the same, with the cost of the last checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from estimator_runtime.config.options import OPTIONS
from estimator_runtime.errors import ConfigError

_logger = logging.getLogger(__name__)
_OPTION = OPTIONS["checkpoint_overhead"]

LEAST_SECS = 10.0
MOST_SECS = 30 * 60.0
# TensorFlow's default, for hooks whose interval cannot follow the cost.
_FIXED_SECS = 600
_ARGUMENTS = ("save_checkpoints_steps", "save_checkpoints_secs")


class CostInterval(float):
    """An interval between checkpoints, in seconds, that limits what they cost.

    It behaves like any other number. The value is the current interval: at first the
    shortest one, which applies until a cost is known.

    Attributes:
        overhead: The fraction of the wall time that checkpoints may take, between 0
            and 1.
    """

    overhead: float

    def __new__(cls, overhead: float, secs: float = LEAST_SECS) -> CostInterval:
        """Create an interval; `secs` is its current value."""
        self = super().__new__(cls, secs)
        self.overhead = overhead
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the arguments of `__new__` for a copy."""
        return self.overhead, float(self)

    def at_cost(self, secs: float) -> CostInterval:
        """Return the interval for checkpoints that cost `secs` each, within bounds."""
        interval = min(max(secs / self.overhead, LEAST_SECS), MOST_SECS)
        return CostInterval(self.overhead, interval)


def for_overhead(overhead: float | None) -> float:
    """Return the interval that applies if you give no interval, in seconds.

    Args:
        overhead: The fraction of the time that checkpoints may take, or None.
    """
    return _FIXED_SECS if overhead is None else CostInterval(overhead)


def of_environ() -> float:
    """Return the interval that the environment gives, in seconds.

    Raises:
        ConfigError: If the overhead in the environment is not valid.
    """
    return for_overhead(_OPTION.in_environ())


def of_run_config(
    arguments: Mapping[str, Any], overhead: float | None
) -> dict[str, float]:
    """Return the argument of RunConfig that an overhead stands for.

    Args:
        arguments: Arguments of RunConfig that were given, by name.
        overhead: Its `checkpoint_overhead`. None takes the environment's, if
            `arguments` have no interval.

    Returns:
        A dict with `save_checkpoints_secs`, or an empty dict if there is no overhead.

    Raises:
        ConfigError: If the overhead is out of range, or given together with an
            interval.
    """
    if overhead is None:
        name_unused(arguments)
        if not any(name in arguments for name in _ARGUMENTS):
            overhead = _OPTION.in_environ()
        if overhead is None:
            return {}
    _OPTION.check(overhead, "RunConfig: checkpoint_overhead")
    given = [name for name in _ARGUMENTS if arguments.get(name) is not None]
    if given:
        raise ConfigError(
            f"RunConfig: checkpoint_overhead is {overhead!r}, but {given[0]} is given "
            "too; leave one of them out"
        )
    return {"save_checkpoints_secs": for_overhead(overhead)}


def name_unused(arguments: Mapping[str, Any]) -> None:
    """Log a warning if an interval overrides the environment's overhead.

    Args:
        arguments: Arguments of RunConfig that were given, by name.
    """
    # Setting both intervals to None is a choice too.
    chosen = [name for name in _ARGUMENTS if name in arguments]
    overhead = _OPTION.in_environ() if chosen else None
    if overhead is None:
        return
    named = [name for name in chosen if arguments[name] is not None] or chosen
    _logger.warning(
        "checkpoint_overhead is %s (--checkpoint-overhead, or %s), but the program's "
        "RunConfig has %s, which wins",
        overhead,
        _OPTION.variable,
        ", ".join(f"{name}={arguments[name]!r}" for name in named),
    )


def fix(hooks: Iterable[Any] | None) -> None:
    """Set a fixed interval in TensorFlow's hooks that have a `CostInterval`.

    Args:
        hooks: Hooks of a session. They are changed in place.
    """
    for hook in hooks or ():
        timer = getattr(hook, "_timer", None)
        if timer is not None and hasattr(timer, "_every_secs"):
            timer._every_secs = fixed(timer._every_secs)


def fixed(secs: float | None) -> float | None:
    """Return a fixed interval in place of a `CostInterval`, else `secs` unchanged."""
    return _FIXED_SECS if isinstance(secs, CostInterval) else secs
