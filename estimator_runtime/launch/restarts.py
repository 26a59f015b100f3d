"""Whether a task that failed is started again, and when."""

import dataclasses

# Errors that come from another task's failure, and may go with it.
_OF_PEERS = frozenset(
    (
        "AbortedError",
        "CancelledError",
        "DeadlineExceededError",
        "PeerTimeoutError",
        "UnavailableError",
    )
)
_NAN = "NanLossDuringTrainingError"
# Errors that the same program would only run into again.
_FINAL = frozenset(
    (
        "CompatibilityError",
        "ConfigError",
        "ConfigTypeError",
        "EstimatorRuntimeError",  # a script that cannot be parsed
        "IndentationError",
        "ModuleNotFoundError",
        _NAN,
        "SyntaxError",
        "UsageError",
    )
)
# Of a training that SIGTERM or Ctrl-C has stopped, with a checkpoint.
STOPPED = {143: "SIGTERM", 130: "SIGINT"}
_FIRST_BACK_OFF_SECS = 1.0
_MAX_BACK_OFF_SECS = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a run ended.

    Attributes:
        status: Its exit status, negative for a signal.
        error: The class name of the Python error that ended it, or None.
        step: The last global step that it reported, or None.
        is_in_vain: Whether it lost its address before it gave any sign of life.
    """

    status: int
    error: str | None = None
    step: int | None = None
    is_in_vain: bool = False

    @property
    def is_stop(self):
        """Whether it was told to end, and has done so in order."""
        return self.stopped_by is not None

    @property
    def stopped_by(self):
        """The name of the signal that told it to end in order, or None."""
        return STOPPED.get(self.status)

    @property
    def is_nan(self):
        """Whether its loss was NaN: what it shares with others is no good any more."""
        return self.error == _NAN

    @property
    def is_of_program(self):
        """Whether the program itself ended the run, and not the world around it."""
        return self.status > 0 and self.error not in _OF_PEERS and not self.is_stop


class Budget:
    """The restarts of one task, or of a gang.

    The first restart is immediate; each later one waits twice as long as the one
    before, at most half a minute.

    One that was in vain is made good, once: on a machine that answers nothing a task is
    started again before anybody knows that the machine is gone.
    """

    def __init__(self, max_restarts):
        self.max_restarts = max_restarts
        self.used = 0
        self._last = None
        self._makes_good = False  # the last restart, if that was in vain

    def refusal(self, failure):
        """Say why there is no restart after `failure`; None if there is one."""
        if self._is_made_good(failure):
            return None
        last, self._last = self._last, failure
        if failure.error in _FINAL:
            return f"{failure.error} would only repeat"
        if failure.is_of_program and failure == last:
            at = f" at step {failure.step}" if failure.step is not None else ""
            return f"the same failure as the last time{at}"
        if self.used >= self.max_restarts:
            noun = "restart" if self.max_restarts == 1 else "restarts"
            return f"{self.max_restarts} {noun} used up" if self.used else "no restarts"
        return None

    def spend(self, failure):
        """Use one restart after `failure`, and give the seconds to wait before it."""
        if self._is_made_good(failure):
            self._makes_good = False
            return 0.0
        self._makes_good = True
        self.used += 1
        if self.used == 1:
            return 0.0
        return min(_FIRST_BACK_OFF_SECS * 2 ** (self.used - 2), _MAX_BACK_OFF_SECS)

    def _is_made_good(self, failure):
        return failure.is_in_vain and self._makes_good
