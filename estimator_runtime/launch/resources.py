"""What each task of a job takes of its node, and whether a cluster can ever have it."""

import dataclasses
import math

from estimator_runtime.errors import ConfigError

# By so much may a sum or a quotient of floats be wrong.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """What one task is given; the local back end gives whatever there is.

    Attributes:
        cpus: Cores, also a part of one.
        gpus: GPUs, also a part of one; a task without any sees none.
    """

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self):
        """Check the values.

        Raises:
            ConfigError: If one is negative or no number.
        """
        for name in ("cpus", "gpus"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and 0 <= value < math.inf):
                raise ConfigError(
                    f"Resources: {name} is {value!r}; give a number, 0 or more"
                )

    def __str__(self):
        gpus = f" and {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus:g} CPU{gpus}"


def why_never(asked, nodes):
    """Say why a cluster can never place these tasks; None if it might.

    Args:
        asked: The `Resources` of each task.
        nodes: Address of each node to all the `Resources` it has, used or not.

    Returns:
        What was asked and what there is, on one line. That is all if the tasks are of
        one size; of several sizes, a few may still find no room together.
    """
    has = ", ".join(f"{name} has {resources}" for name, resources in nodes.items())
    for each in asked:
        if not any(_fits(each, node) for node in nodes.values()):
            return f"one task takes {each}, and no node has that: {has or 'none'}"
    needed, total = _sum(asked), _sum(nodes.values())
    if not _fits(needed, total):
        return (
            f"{len(asked)} tasks take {needed}, and the whole cluster has {total}: "
            f"{has}"
        )
    for size in dict.fromkeys(asked):
        # None of them is smaller: a node has room for at most so many of them all.
        many = [each for each in asked if _fits(size, each)]
        slots = sum(_slots(size, node) for node in nodes.values())
        if len(many) > slots:
            least = "" if set(many) == {size} else "at least "
            return (
                f"{len(many)} tasks take {least}{size} each, and the whole cluster has "
                f"room for {slots} of that size: {has}"
            )
    return None


def _slots(size, node):
    """Give how many tasks of a size a node has room for."""
    most = []
    if size.cpus:
        most.append(_floor(node.cpus / size.cpus))
    if 0 < size.gpus <= 1:  # no part of one GPU and of another
        most.append(_floor(node.gpus) * _floor(1 / size.gpus))
    elif size.gpus:
        most.append(_floor(node.gpus / size.gpus))
    return min(most, default=math.inf)


def _floor(value):
    return math.floor(value + _ROUNDING)


def _fits(asked, there):
    return asked.cpus <= there.cpus + _ROUNDING and asked.gpus <= there.gpus + _ROUNDING


def _sum(many):
    many = list(many)
    return Resources(
        cpus=sum(each.cpus for each in many), gpus=sum(each.gpus for each in many)
    )
