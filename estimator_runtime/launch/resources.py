"""What each task of a job takes of its node, and whether a cluster can ever have it."""

import dataclasses
import math

from estimator_runtime.errors import ConfigError


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
        What was asked and what there is, on one line.
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
    return None


def _fits(asked, there):
    return asked.cpus <= there.cpus and asked.gpus <= there.gpus


def _sum(many):
    many = list(many)
    return Resources(
        cpus=sum(each.cpus for each in many), gpus=sum(each.gpus for each in many)
    )
