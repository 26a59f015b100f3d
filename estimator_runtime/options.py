"""What this runtime offers beyond TensorFlow's signatures, carried to the session.

The frozen Estimator calls `MonitoredTrainingSession` with TensorFlow's arguments only.
What else its config says travels beside the call, in a context variable.
"""

import contextlib
import contextvars
import dataclasses
import os

from estimator_runtime import option_values
from estimator_runtime.errors import ConfigError

LOOP_VARIABLE = "ESTIMATOR_RUNTIME_LOOP"
STEPS_PER_RUN_VARIABLE = "ESTIMATOR_RUNTIME_STEPS_PER_RUN"
ASYNC_CHECKPOINT_VARIABLE = "ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT"
CHECKPOINT_OVERHEAD_VARIABLE = "ESTIMATOR_RUNTIME_CHECKPOINT_OVERHEAD"
KEEP_BEST_VARIABLE = "ESTIMATOR_RUNTIME_KEEP_BEST"
BEST_METRIC_VARIABLE = "ESTIMATOR_RUNTIME_BEST_METRIC"
BEST_MODE_VARIABLE = "ESTIMATOR_RUNTIME_BEST_MODE"
PROGRESS_VARIABLE = "ESTIMATOR_RUNTIME_PROGRESS"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training session.

    Attributes:
        loop: What runs the steps: "auto", all of this package's step loop; "plans",
            the same but for several steps in one call; "stock", TensorFlow's own.
        steps_per_run: The most training steps in one call of the session: 1 or more,
            or "auto".
        async_checkpoint: Whether checkpoints are written while training goes on.
        checkpoint_overhead: Part of the wall time that checkpoints may take, where no
            interval is given; None leaves the interval as it is.
        keep_best: How many of the best checkpoints to keep beside the newest; 0 for
            none.
        best_metric: Metric of the evaluation that says which are the best, or None.
        best_mode: "max" if more of it is better, "min" if less is; None for "min" if
            its name has "loss" or "error" in it.
        progress: How the progress of a process on its own is shown: "bar", "plain",
            "none", or "auto", a bar on a terminal and in a notebook, else lines.
    """

    loop: str = "auto"
    steps_per_run: int | str = 1
    async_checkpoint: bool = True
    checkpoint_overhead: float | None = None
    keep_best: int = 0
    best_metric: str | None = None
    best_mode: str | None = None
    progress: str = "none"

    def __post_init__(self):
        """Check the values."""
        for name, check in CHECKS.items():
            check(getattr(self, name), name)
        if self.keep_best and self.best_metric is None:
            raise ConfigError(
                f"keep_best is {self.keep_best}, but best_metric is not given; name "
                "the metric of the evaluation that says which checkpoints are the best"
            )
        if self.keep_best:
            option_values.best_mode_of(self.best_metric, self.best_mode)

    @classmethod
    def of(cls, config):
        """Give the options of a config.

        Those of the frozen package, and of TPU's, have none: the environment's.

        Raises:
            ConfigError: As `from_environ`.
        """
        own = getattr(config, "training_options", None)
        return own if isinstance(own, cls) else cls.from_environ()

    @classmethod
    def from_environ(cls, environ=os.environ, **given):
        """Read the options that the command's flags left in the environment.

        Args:
            environ: The environment; that of this process by default.
            **given: Options by name that it has no say in.

        Raises:
            ConfigError: If one has a value that cannot be used, or would be ignored.
        """
        found = {
            name: parse(environ[variable], variable)
            for name, (variable, _, parse) in _OPTIONS.items()
            if variable in environ and name not in given
        }
        chosen = {**found, **given}
        # keep_best=0 says that none is wanted; left out, it was forgotten.
        for name in ("best_metric", "best_mode"):
            if chosen.get(name) is not None and "keep_best" not in chosen:
                raise ConfigError(
                    f"{name} is {chosen[name]!r}, but keep_best is not given; give how "
                    f"many of the best checkpoints to keep, or leave {name} out"
                )
        return cls(**chosen)


# Name of each option to its variable, and to what checks a value and reads a text, both
# of (value, source); the message of an error names the source.
_OPTIONS = {
    "loop": (
        LOOP_VARIABLE,
        option_values.check_loop,
        option_values.parsed_by(option_values.check_loop),
    ),
    "steps_per_run": (
        STEPS_PER_RUN_VARIABLE,
        option_values.check_steps_per_run,
        option_values.parse_steps_per_run,
    ),
    "async_checkpoint": (
        ASYNC_CHECKPOINT_VARIABLE,
        option_values.check_async_checkpoint,
        option_values.parse_async_checkpoint,
    ),
    "checkpoint_overhead": (
        CHECKPOINT_OVERHEAD_VARIABLE,
        option_values.check_checkpoint_overhead,
        option_values.parse_checkpoint_overhead,
    ),
    "keep_best": (
        KEEP_BEST_VARIABLE,
        option_values.check_keep_best,
        option_values.parse_keep_best,
    ),
    "best_metric": (
        BEST_METRIC_VARIABLE,
        option_values.check_best_metric,
        option_values.parsed_by(option_values.check_best_metric),
    ),
    "best_mode": (
        BEST_MODE_VARIABLE,
        option_values.check_best_mode,
        option_values.parsed_by(option_values.check_best_mode),
    ),
    "progress": (
        PROGRESS_VARIABLE,
        option_values.check_progress,
        option_values.parsed_by(option_values.check_progress),
    ),
}
CHECKS = {name: check for name, (_, check, _) in _OPTIONS.items()}


def in_environ(name, environ=os.environ):
    """Give one option that the environment has; None if it has not.

    Raises:
        ConfigError: If its value cannot be used.
    """
    variable, _, parse = _OPTIONS[name]
    return parse(environ[variable], variable) if variable in environ else None


_current: contextvars.ContextVar[TrainingOptions | None] = contextvars.ContextVar(
    "estimator_runtime_training_options", default=None
)


def current():
    """Give the options of the training under way; else those of the environment."""
    return _current.get() or TrainingOptions.from_environ()


@contextlib.contextmanager
def use(options):
    """Let sessions made in this context have `options`."""
    token = _current.set(options)
    try:
        yield
    finally:
        _current.reset(token)
