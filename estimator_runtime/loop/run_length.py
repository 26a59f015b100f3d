"""The number of steps that one call of the session runs."""

import logging
from collections.abc import Sequence
from typing import Any

from estimator_runtime.output.training_log import TRAINING_LOG

# A stop request waits for the end of a run. Runs of "auto" leave it unnoticed; a number
# that was asked for may take longer.
_AUTO_SECS = 0.1
_MOST_SECS = 1.0
# Most of the grace period must be left for the `end` of the hooks, on a busy machine.
_MOST_OF_GRACE = 0.1
_LEAST_SECS = 0.05
_MOST_COUNTED = 2**31 - 1  # the loop counts in 32 bits

_logger = logging.getLogger(__name__)


class RunLength:
    """How many steps one call of the session may run, and for how long.

    With a number, runs start with one step and double until they have that number, or
    take long. A run that takes too long makes the next runs shorter. So a stop request,
    which waits for the end of a run, has most of its grace period left.

    With "auto", `IdleRuns` runs steps for up to `secs`.

    Args:
        steps_per_run: The maximum number of steps, 1 or more, or "auto".
        grace_secs: Seconds that a training has to end its step after SIGTERM.

    Attributes:
        asked_for: The number that was given; None for "auto".
        is_auto: Whether it is "auto".
        is_single: Whether steps are run one by one.
        secs: Seconds that a run may take.
        settled_secs: Seconds that the last run took, if its length has proved right
            twice in a row; else None.
    """

    def __init__(self, steps_per_run: int | str, grace_secs: float) -> None:
        self.is_auto = isinstance(steps_per_run, str)
        self.asked_for = None
        if not isinstance(steps_per_run, str):
            self.asked_for = min(steps_per_run, _MOST_COUNTED)
        long_secs = _AUTO_SECS if self.is_auto else _MOST_SECS
        self.secs = min(long_secs, max(_MOST_OF_GRACE * grace_secs, _LEAST_SECS))
        self._steps = 1
        self._unchanged = 0  # runs in a row
        self.settled_secs: float | None = None
        self.is_single = steps_per_run == 1

    def __str__(self) -> str:
        return str(self.asked_for or "auto")

    def run_singly(self, reason: object) -> None:
        """Run steps one by one from now on, and log the reason once.

        Args:
            reason: Completes "because the step ...".
        """
        if self.is_single:
            return
        self.is_single = True
        # "auto" asks for no particular step to be in a loop.
        log, level = (TRAINING_LOG, logging.INFO)
        if not self.is_auto:
            log, level = _logger, logging.WARNING
        log.log(
            level,
            "steps_per_run=%s: steps are run one by one, because the step %s",
            self,
            reason,
        )

    def up_to(self, due: int | None) -> int:
        """Return the length of the next run.

        Args:
            due: The number of steps until one that a hook must see, or None.
        """
        return self._steps if due is None else min(due, self._steps)

    def took(self, secs: float, steps: int) -> None:
        """Adapt the length of the next runs to a run that has ended.

        Args:
            secs: Seconds that the run took.
            steps: The number of steps that it had.
        """
        before = self._steps
        if secs > self.secs:
            fitting = int(steps * self.secs / 2 / secs)
            self._steps = max(1, min(before, fitting))
        elif steps < before:
            return  # a run that a hook has cut short shows nothing about longer ones
        elif secs < self.secs / 2:
            self._steps = min(2 * before, self.asked_for or before)
        self._unchanged = self._unchanged + 1 if self._steps == before else 0
        # The first run compiles, so it takes as long as many later steps.
        self.settled_secs = secs if self._unchanged > 1 else None


class RunLog:
    """Logs once how many steps run in one call of the session, and why.

    Args:
        hooks: The hooks of a session.
        run_length: The length of its runs.
    """

    def __init__(self, hooks: Sequence[Any], run_length: RunLength) -> None:
        self._names = [type(hook).__name__ for hook in hooks]
        self._run_length = run_length
        self._is_logged = False
        # Of the previous run: its length, and the names of the hooks that set it.
        self._cut: tuple[int, set[str]] = 0, set()

    def end(self, steps: int, due: Sequence[int | None]) -> None:
        """Record a run that has ended, and log its length once that has proved right.

        Call `RunLength.took` first.

        Args:
            steps: The number of steps that the run had.
            due: The number of steps until each hook was due when it began, or None.
        """
        if self._is_logged:
            return
        names = zip(self._names, due, strict=True)
        cut = {name for name, each in names if each == steps}
        before, self._cut = self._cut, (steps, cut)
        secs = self._run_length.settled_secs
        reason = f"steps_per_run={self._run_length}"
        if steps == self._run_length.asked_for:
            pass
        elif secs is not None:
            reason += f", and so many take {secs:.2g} s"
        # Only when the same hook has set this length twice.
        elif steps == before[0] and (again := cut & before[1]):
            reason += f", and {min(again)} must see a step then"
        else:
            return
        self._is_logged = True
        unit = "step" if steps == 1 else "steps"
        TRAINING_LOG.info("running %d %s per session call: %s", steps, unit, reason)
