"""What a plan runs and fetches in place of a step's own ops and tensors."""

import dataclasses

import tensorflow as tf

from estimator_runtime.loop.plan import CannotPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Substitute:
    """What to run and fetch in place of the ops and tensors of a step.

    Attributes:
        feeds: Names of the placeholders to feed.
        target: The op that is run whatever is asked for.
        values: Name of a tensor to the tensor with its value, and of an op to the op
            that stands for it.
    """

    feeds: tuple[str, ...]
    target: tf.Operation
    values: dict

    def names_of(self, tensors):
        """Give the names to fetch for `tensors`; CannotPlan if one is unknown."""
        return [each.name for each in self._all(tensors)]

    def targets_of(self, operations):
        """Give the names to run for `operations`; CannotPlan if one is unknown."""
        return sorted({each.name for each in (self.target, *self._all(operations))})

    def _all(self, wanted):
        unknown = [each.name for each in wanted if each.name not in self.values]
        if unknown:
            raise CannotPlan(", ".join(unknown))
        return [self.values[each.name] for each in wanted]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedSteps:
    """A loop of steps, in the graph of the step.

    The substitutes give the values that the last step left. The feed of the first
    three is the number of steps to run.

    Attributes:
        steps: For all but what needs variables from before the last step.
        last: For everything; it reads those variables before the first step, so it
            is for one step.
        but_last: For everything, with zeros in place of what is not the step's own: it
            may change something, so it is run with the last step only.
        kept: For what the caller asks for; runs nothing, and gives the values of the
            last complete step also when a run has failed.
        extras: Names of what is not the step's own.
        ran: A tensor with the number of steps run, to be asked of the first three.
        total: A tensor with the number of complete steps of all runs; to be asked of
            the session itself.
        reset: The op that sets it to 0, to be run before all else.
    """

    steps: Substitute
    last: Substitute
    but_last: Substitute
    kept: Substitute
    extras: frozenset[str]
    ran: tf.Tensor
    total: tf.Tensor
    reset: tf.Operation
