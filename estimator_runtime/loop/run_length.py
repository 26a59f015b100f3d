"""How many steps one call of the session may run, and for how long."""

import logging

from estimator_runtime.output.training_log import TRAINING_LOG

# A stop request waits for the end of a run. Runs of this length leave it unnoticed.
_MOST_SECS = 0.1
# Most of the grace period must be left for the `end` of the hooks, on a busy machine.
_MOST_OF_GRACE = 0.1
_LEAST_SECS = 0.05
_MOST_STEPS = 2**31 - 1  # the loop counts in 32 bits

_logger = logging.getLogger(__name__)


class RunLength:
    """The most steps of one call of the session, and the most seconds.

    Args:
        steps_per_run: The maximum number of steps, 1 or more, or "auto".
        grace_secs: Seconds that a training has to end its step after SIGTERM.

    Attributes:
        is_auto: Whether it is "auto".
        is_single: Whether steps are run one by one.
        most: The maximum number of steps.
        secs: Seconds after which a run begins no further step.
    """

    def __init__(self, steps_per_run: int | str, grace_secs: float) -> None:
        self._asked_for = steps_per_run
        self.is_auto = isinstance(steps_per_run, str)
        self.is_single = steps_per_run == 1
        self.most = _MOST_STEPS
        if not isinstance(steps_per_run, str):
            self.most = min(steps_per_run, _MOST_STEPS)
        self.secs = min(_MOST_SECS, max(_MOST_OF_GRACE * grace_secs, _LEAST_SECS))

    def __str__(self) -> str:
        return str(self._asked_for)

    def rule_out(self, reason: object) -> None:
        """Run steps one by one, for a reason that shows before any run of several.

        It is logged if a number was asked for: "auto" has no effect then.

        Args:
            reason: Completes "because the step ...".
        """
        if self.is_auto:
            self.is_single = True
        else:
            self.run_singly(reason)

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
