"""The restart policy: which failures are followed by a restart, and after how long."""

import dataclasses

# Errors that the failure of another task causes, so that a restart may help. They
# include their subclasses.
_PEER_ERRORS = frozenset(
    (
        "estimator_runtime.errors.PeerTimeoutError",
        "tensorflow.python.framework.errors_impl.AbortedError",
        "tensorflow.python.framework.errors_impl.CancelledError",
        "tensorflow.python.framework.errors_impl.DeadlineExceededError",
        "tensorflow.python.framework.errors_impl.UnavailableError",
    )
)
_NAN = "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError"
# Errors that would only occur again in the same program. Those of this package include
# their subclasses.
_FINAL_ERRORS = frozenset(
    (
        "builtins.IndentationError",
        "builtins.ModuleNotFoundError",
        "builtins.SyntaxError",
        "estimator_runtime.checkpoint.restore.session_creator.MissingVariablesError",
        "estimator_runtime.checkpoint.restore.session_creator.OtherShapesError",
        "estimator_runtime.errors.CompatibilityError",
        "estimator_runtime.errors.ConfigError",
        "estimator_runtime.errors.UsageError",
        _NAN,
    )
)
# Another one, without its subclasses: the program cannot be parsed.
_UNPARSABLE = "estimator_runtime.errors.EstimatorRuntimeError"
# Exit statuses of a training that a signal has stopped, with a checkpoint.
STOPPED = {143: "SIGTERM", 130: "SIGINT", 152: "SIGXCPU"}
_FIRST_BACK_OFF_SECS = 1.0
_MAX_BACK_OFF_SECS = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a run ended.

    Attributes:
        status: The exit status, negative for a signal. 0 only if the run ended before
            its training did.
        error: The qualified name of the class of the Python error that ended the run,
            followed by the names of its base classes in this package and in TensorFlow.
            Empty if there was no such error.
        step: The last global step that the run reported, or None.
        is_machine_lost: Whether the machine of the run is gone.
    """

    status: int
    error: tuple[str, ...] = ()
    step: int | None = None
    is_machine_lost: bool = False

    @property
    def is_stop(self) -> bool:
        """Whether a signal told the run to stop, and it stopped in an orderly way."""
        return self.status in STOPPED

    @property
    def error_name(self) -> str:
        """The name of the class of the error, without its module; "" for no error."""
        return self.error[0].rpartition(".")[2] if self.error else ""

    @property
    def is_final(self) -> bool:
        """Whether the same error would only occur again in the same program."""
        is_unparsable = self.error[:1] == (_UNPARSABLE,)
        return is_unparsable or not _FINAL_ERRORS.isdisjoint(self.error)

    @property
    def is_nan(self) -> bool:
        """Whether the loss was NaN, which spoils the values that the tasks share."""
        return _NAN in self.error

    @property
    def is_of_program(self) -> bool:
        """Whether the program ended the run: no signal, no peer and no stop request."""
        is_of_peer = not _PEER_ERRORS.isdisjoint(self.error)
        return self.status >= 0 and not is_of_peer and not self.is_stop


class Budget:
    """The restarts of one task, or of a gang.

    The first restart is immediate. The second one waits one second, and each later one
    twice as long as the one before, at most half a minute.

    Failures that are far apart are no sign of a broken program. So the whole budget
    is available again after `refill_secs` of progress without a failure. Only steps
    that no run has reached before count as progress; repeating lost steps does not.

    Attributes:
        max_restarts: The number of restarts.
        refill_secs: Seconds of progress after which the budget is full again.
        used: The number of restarts used since the budget was last full.
    """

    def __init__(self, max_restarts: int, refill_secs: float = 3600.0) -> None:
        self.max_restarts, self.refill_secs = max_restarts, refill_secs
        self.used = 0
        self._furthest: dict[str | None, int] = {}  # highest step, by model directory
        self._since: float | None = None  # time of the first progress since a restart
        self._last: Failure | None = None

    def refusal(self, failure: Failure) -> str | None:
        """Return why there is no restart after a failure, or None if there is one."""
        if failure.is_final:
            return "not restarted, as a restart would end the same way"
        if failure.is_machine_lost:
            return "it cannot be restarted there"
        at = f" at step {failure.step}" if failure.step is not None else ""
        if failure.is_of_program and failure == self._last:
            return f"the same failure as the last time{at}"
        if self.used >= self.max_restarts:
            noun = "restart" if self.max_restarts == 1 else "restarts"
            return f"{self.max_restarts} {noun} used up" if self.used else "no restarts"
        return None

    @property
    def delay_secs(self) -> float:
        """How long to wait before the next restart."""
        if self.used == 0:
            return 0.0
        return min(_FIRST_BACK_OFF_SECS * 2 ** (self.used - 1), _MAX_BACK_OFF_SECS)

    def spend(self, failure: Failure) -> None:
        """Use one restart after a failure."""
        self._since, self._last = None, failure
        self.used += 1

    def advance(self, folder: str | None, step: int, now: float) -> None:
        """Record that a task has reached a step, and refill the budget if that is due.

        The steps of each model directory are counted on their own.
        """
        if step <= self._furthest.get(folder, -1):
            return
        self._furthest[folder] = step
        if self._since is None:
            self._since = now
        elif now - self._since >= self.refill_secs:
            self.used = 0
