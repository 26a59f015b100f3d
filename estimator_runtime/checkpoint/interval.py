"""The interval between checkpoints, where it follows what they cost.

CheckFreq (Mohan et al., FAST'21) limits the cost of checkpoints and adapts the interval
to it. This module does the same, with the cost of the last checkpoint.
"""

from typing import Any

LEAST_SECS = 10.0
MOST_SECS = 30 * 60.0
# TensorFlow's default. A hook with another interval keeps it.
DEFAULT_SECS = 600
_MARK = "_estimator_runtime_follows_cost"


def at_cost(overhead: float, secs: float) -> float:
    """Return the seconds between checkpoints that cost `secs` each, within bounds.

    Args:
        overhead: The fraction of the wall time that checkpoints may take, between 0
            and 1.
        secs: What a checkpoint costs.
    """
    return min(max(secs / overhead, LEAST_SECS), MOST_SECS)


def is_default(hook: Any) -> bool:
    """Return whether a CheckpointSaverHook has TensorFlow's default interval."""
    # A subclass in the program may have no timer, or one of its own.
    timer = getattr(hook, "_timer", None)
    has_default = getattr(timer, "_every_secs", None) == DEFAULT_SECS
    return has_default or hasattr(timer, _MARK)


def mark(timer: Any) -> None:
    """Note that the interval of a timer follows the cost, and is not the program's."""
    setattr(timer, _MARK, True)
