"""Whether a task that failed is started again, and when."""

import dataclasses

# Errors that come from another task's failure, and may go with it; with subclasses.
_OF_PEERS = frozenset(
    (
        "estimator_runtime.errors.PeerTimeoutError",
        "tensorflow.python.framework.errors_impl.AbortedError",
        "tensorflow.python.framework.errors_impl.CancelledError",
        "tensorflow.python.framework.errors_impl.DeadlineExceededError",
        "tensorflow.python.framework.errors_impl.UnavailableError",
    )
)
_NAN = "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError"
# Errors that the same program would only run into again; with subclasses.
_FINAL = frozenset(
    (
        "estimator_runtime.errors.CompatibilityError",
        "estimator_runtime.errors.ConfigError",
        "estimator_runtime.errors.UsageError",
        _NAN,
    )
)
# The same, but without subclasses.
_FINAL_ITSELF = frozenset(
    (
        "builtins.IndentationError",
        "builtins.ModuleNotFoundError",
        "builtins.SyntaxError",
        "estimator_runtime.errors.EstimatorRuntimeError",  # it cannot be parsed
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
        status: Its exit status, negative for a signal; 0 if its training had not ended.
        error: The qualified name of the class of the Python error that ended it, then
            those of its bases that are this package's or TensorFlow's; empty if there
            was none.
        step: The last global step that it reported, or None.
        is_in_vain: Whether it lost its address before it gave any sign of life.
    """

    status: int
    error: tuple[str, ...] = ()
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
    def error_name(self) -> str:
        """The bare name of the class of the error, as Python prints it; or ""."""
        return self.error[0].rpartition(".")[2] if self.error else ""

    @property
    def is_final(self) -> bool:
        """Whether the same program would only run into the same error again."""
        is_itself = not _FINAL_ITSELF.isdisjoint(self.error[:1])
        return is_itself or not _FINAL.isdisjoint(self.error)

    @property
    def is_nan(self):
        """Whether its loss was NaN: what it shares with others is no good any more."""
        return _NAN in self.error

    @property
    def is_of_program(self):
        """Whether the program itself ended the run, and not the world around it."""
        is_of_peer = not _OF_PEERS.isdisjoint(self.error)
        return self.status >= 0 and not is_of_peer and not self.is_stop


class Budget:
    """The restarts of one task, or of a gang.

    The first restart is immediate; each later one waits twice as long as the one
    before, at most half a minute.

    One that was in vain is made good, once: on a machine that answers nothing a task is
    started again before anybody knows that the machine is gone.

    Failures that are far apart are no sign of a broken program. So the whole budget
    comes back after `refill_secs` of progress without a failure. Progress is steps that
    no run had reached before: to repeat lost steps again and again is none.
    """

    def __init__(self, max_restarts: int, refill_secs: float = 3600.0):
        self.max_restarts, self.refill_secs = max_restarts, refill_secs
        self.used = 0
        self._furthest: dict[str | None, int] = {}  # step, by model directory
        self._since: float | None = None  # the first progress since the last restart
        self._last = None
        self._makes_good = False  # the last restart, if that was in vain

    def refusal(self, failure):
        """Say why there is no restart after `failure`; None if there is one."""
        if self._is_made_good(failure):
            return None
        last, self._last = self._last, failure
        if failure.is_final:
            return f"{failure.error_name} would only repeat"
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
        self._makes_good, self._since = True, None
        self.used += 1
        if self.used == 1:
            return 0.0
        return min(_FIRST_BACK_OFF_SECS * 2 ** (self.used - 2), _MAX_BACK_OFF_SECS)

    def advance(self, folder: str | None, step: int, now: float) -> None:
        """Note that a task has reached a step, and refill the budget where that is due.

        Args:
            folder: The model directory that the step belongs to, if it is known.
            step: The global step.
            now: The time.
        """
        if step <= self._furthest.get(folder, -1):
            return
        self._furthest[folder] = step
        if self._since is None:
            self._since = now
        elif now - self._since >= self.refill_secs:
            self.used = 0

    def _is_made_good(self, failure):
        return failure.is_in_vain and self._makes_good
