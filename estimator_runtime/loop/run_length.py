"""How many steps one call of the session runs."""

import logging

from estimator_runtime.training_log import TRAINING_LOG

# A run should be long enough to drown the cost of starting it, and short enough that a
# stop request, which waits for its end, does not wait long.
_SHORT_SECS = 0.05
_LONG_SECS = 0.2
_LONG_SECS_OF_A_NUMBER = 1.0
# The grace of a stop has to leave time for the hooks' end, on a machine that is busy.
_MOST_OF_GRACE = 0.1
_MOST_STEPS = 10_000
_FIRST_RUNS = 8  # as `threads` has them: what compiles is among them
_MOST_COUNTED = 2**31 - 1  # by the loop, in 32 bits

_logger = logging.getLogger(__name__)


class RunLength:
    """The most steps in one run, found by the clock.

    Runs start with one step and double until they take long enough, or have as many
    steps as were asked for. A run that takes too long makes the next ones shorter, so
    that a stop request, which waits for the end of a run, finds most of its grace left.

    Args:
        steps_per_run: The most steps, 1 or more; or "auto": runs grow until they take
            about a tenth of a second.
        grace_secs: Seconds that a training has to end its step after SIGTERM.

    Attributes:
        asked_for: The number that was given; None for "auto".
        is_single: Whether steps are run one by one.
        settled_secs: What the last run took, in seconds, if its length was found right
            twice in a row, more often for a single step; else None.
    """

    def __init__(self, steps_per_run: int | str, grace_secs: float):
        if isinstance(steps_per_run, str):  # "auto"
            self.asked_for, self._most_steps = None, _MOST_STEPS
            long_secs = _LONG_SECS
        else:
            self.asked_for = self._most_steps = min(steps_per_run, _MOST_COUNTED)
            long_secs = _LONG_SECS_OF_A_NUMBER
        most_secs = max(_MOST_OF_GRACE * grace_secs, _SHORT_SECS)
        self._long_secs = min(long_secs, most_secs)
        # So short that twice as many steps do not take too long.
        self._short_secs = self._long_secs / 2
        if self.asked_for is None:
            self._short_secs = min(self._short_secs, _SHORT_SECS)
        self._steps = 1
        self._unchanged = 0  # runs in a row
        self.settled_secs: float | None = None
        self.is_single = steps_per_run == 1

    def __str__(self) -> str:
        return str(self.asked_for or "auto")

    def run_singly(self, reason: object) -> None:
        """Run steps one by one from here on; the log says once that the step ..."""
        if not self.is_single:
            self.is_single = True
            _logger.warning(
                "steps_per_run=%s: steps are run one by one, because the step %s",
                self,
                reason,
            )

    def up_to(self, due: int | None) -> int:
        """Return the length of the next run, if a hook must see the step `due` on."""
        return self._steps if due is None else min(due, self._steps)

    def took(self, secs: float, steps: int) -> None:
        """Adapt the next runs to one of `steps` steps that took `secs`."""
        before = self._steps
        if secs > self._long_secs:
            fitting = int(steps * self._long_secs / 2 / secs)
            self._steps = max(1, min(before, fitting))
        elif steps < before:
            return  # a hook has cut it short: it tells nothing of longer ones
        elif secs < self._short_secs:
            self._steps = min(2 * before, self._most_steps)
        self._unchanged = self._unchanged + 1 if self._steps == before else 0
        # One that compiles takes as long as many steps that follow.
        is_found = self._unchanged > (1 if steps > 1 else _FIRST_RUNS)
        self.settled_secs = secs if is_found else None


class Announcement:
    """Says in the log, once, how many steps run in one call of the session, and why.

    Args:
        hooks: The hooks of a session.
        run_length: `RunLength`.
    """

    def __init__(self, hooks, run_length):
        self._hooks = hooks
        self._run_length = run_length
        self._is_made = False
        # The length of the run before, and the hooks that set it.
        self._cut: tuple[int, set[str]] = 0, set()

    def ended(self, steps, due):
        """Take note of a run of so many steps, after the `RunLength` has.

        Args:
            steps: How many it had.
            due: The steps until each hook was due, or None, as it began.
        """
        if self._is_made:
            return
        option = f"steps_per_run={self._run_length}"
        secs = self._run_length.settled_secs
        # A length that a hook has set tells when the same one has set it twice.
        cut = {
            type(hook).__name__
            for hook, each in zip(self._hooks, due, strict=True)
            if each == steps
        }
        before, self._cut = self._cut, (steps, cut)
        if steps == self._run_length.asked_for:
            self._say(steps, option)
        elif secs is not None:
            self._say(steps, f"{option}, and so many take {secs:.2g} s")
        elif steps == before[0] and (again := cut & before[1]):
            self._say(steps, f"{option}, and {min(again)} must see a step then")

    def _say(self, steps, reason):
        self._is_made = True
        unit = "step" if steps == 1 else "steps"
        TRAINING_LOG.info("running %d %s per session call: %s", steps, unit, reason)


class Shortening:
    """Says in the log, once, which hook keeps runs shorter than was asked for.

    The steps between two that one and the same hook must see tell. What is left until
    its first one, or after another hook's, may be few by chance.

    Args:
        hooks: The hooks of a session.
        asked_for: The number of steps in one run; None to say nothing.
    """

    def __init__(self, hooks, asked_for):
        self._hooks = hooks
        self._asked_for = asked_for
        self._acted: list = []  # hooks, at the end of the last run

    def begin(self, due):
        """Look at a run that begins, with the steps until each hook is due, or None."""
        acted, self._acted = self._acted, []
        if self._asked_for is None:
            return
        short = [
            (steps, type(hook).__name__)
            for hook, steps in zip(self._hooks, due, strict=True)
            if hook in acted and steps is not None and steps < self._asked_for
        ]
        if short:
            steps, name = min(short)
            TRAINING_LOG.info(
                "steps_per_run=%s: runs have at most %s, because %s must see a step "
                "that often",
                self._asked_for,
                "1 step" if steps == 1 else f"{steps} steps",
                name,
            )
            self._asked_for = None

    def end(self, steps, due):
        """Take note that a run had so many steps, with `due` as it began."""
        self._acted = [
            hook for hook, each in zip(self._hooks, due, strict=True) if each == steps
        ]
