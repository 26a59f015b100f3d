"""How many steps one call of the session runs."""

# A run should be long enough to drown the cost of starting it, and short enough that a
# stop request, which waits for its end, does not wait long.
_SHORT_SECS = 0.05
_LONG_SECS = 0.2
_MOST_STEPS = 10_000
_MOST_COUNTED = 2**31 - 1  # by the loop, in 32 bits


class RunLength:
    """The most steps in one run: a number, or found by the clock.

    Args:
        steps_per_run: 1 or more, or "auto": runs grow until they take about a tenth
            of a second.
    """

    def __init__(self, steps_per_run):
        self._is_auto = steps_per_run == "auto"
        self._steps = 1 if self._is_auto else min(steps_per_run, _MOST_COUNTED)

    def __str__(self):
        return "auto" if self._is_auto else str(self._steps)

    def up_to(self, due):
        """Give the length of the next run, if a hook must see the step `due` on."""
        return self._steps if due is None else min(due, self._steps)

    def took(self, secs, steps):
        """Take note that a run of `steps` took `secs`."""
        if not self._is_auto or steps < self._steps:
            return
        if secs < _SHORT_SECS:
            self._steps = min(2 * self._steps, _MOST_STEPS)
        elif secs > _LONG_SECS:
            self._steps = max(1, self._steps // 2)
