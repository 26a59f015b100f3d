"""What a plan runs and fetches in place of a step's own ops and tensors."""

import dataclasses

from estimator_runtime.loop.plan import CannotPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Substitute:
    """What to run and fetch in place of the ops and tensors of a step.

    Attributes:
        feeds: Names of the placeholders to feed.
        targets: Names of the ops that stand for any op of the step.
        ops: Names of the ops of the step.
        values: Name of a tensor to the tensor with its value.
    """

    feeds: tuple[str, ...]
    targets: tuple[str, ...]
    ops: frozenset[str]
    values: dict

    def names_of(self, tensors):
        """Give the names to fetch for `tensors`; CannotPlan if one is unknown."""
        unknown = [t.name for t in tensors if t.name not in self.values]
        if unknown:
            raise CannotPlan(f"{unknown} are not computed by the fused steps")
        return [self.values[tensor.name].name for tensor in tensors]

    def targets_of(self, operations):
        """Give the names to run for `operations`; CannotPlan if one is unknown."""
        unknown = [op.name for op in operations if op.name not in self.ops]
        if unknown:
            raise CannotPlan(f"{unknown} are not run by the fused steps")
        return self.targets


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedSteps(Substitute):
    """A loop of steps, in the graph of the step; its feed is how many to run.

    Its values are those of the last step.

    Attributes:
        kept: `Substitute` that gives the caller's values of the last complete step,
            without running any; also after a run that failed.
    """

    kept: Substitute
