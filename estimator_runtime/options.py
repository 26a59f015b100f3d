"""What this runtime offers beyond TensorFlow's signatures, carried to the session.

The frozen Estimator calls `MonitoredTrainingSession` with TensorFlow's arguments only.
What else its config says travels beside the call, in a context variable.
"""

import contextlib
import contextvars
import dataclasses
import os

from estimator_runtime.errors import ConfigError, ConfigTypeError

STEPS_PER_RUN_VARIABLE = "ESTIMATOR_RUNTIME_STEPS_PER_RUN"
ASYNC_CHECKPOINT_VARIABLE = "ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT"
CHECKPOINT_OVERHEAD_VARIABLE = "ESTIMATOR_RUNTIME_CHECKPOINT_OVERHEAD"
PROGRESS_VARIABLE = "ESTIMATOR_RUNTIME_PROGRESS"
PROGRESS_MODES = ("auto", "bar", "plain", "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training session.

    Attributes:
        steps_per_run: Training steps in one call of the session: 1 or more, or
            "auto".
        async_checkpoint: Whether checkpoints are written while training goes on.
        checkpoint_overhead: Part of the wall time that checkpoints may take, where no
            interval is given; None leaves the interval as it is.
        progress: How the progress of a process on its own is shown: "bar", "plain",
            "none", or "auto", a bar on a terminal and in a notebook, else lines.
    """

    steps_per_run: int | str = 1
    async_checkpoint: bool = True
    checkpoint_overhead: float | None = None
    progress: str = "none"

    def __post_init__(self):
        """Check the values."""
        for name, check in CHECKS.items():
            check(getattr(self, name), name)

    @classmethod
    def from_environ(cls, environ=os.environ, **given):
        """Read the options that the command's flags left in the environment.

        Args:
            environ: The environment; that of this process by default.
            **given: Options by name that it has no say in.

        Raises:
            ConfigError: If one has a value that cannot be used.
        """
        found = {
            name: parse(environ[variable], variable)
            for variable, (name, parse) in _VARIABLES.items()
            if variable in environ and name not in given
        }
        return cls(**found, **given)


def parse_steps_per_run(text, source):
    """Read a number of steps, or "auto", given as text.

    Raises:
        ConfigError: If it is neither; the message names `source`.
    """
    value = int(text) if text.strip().isascii() and text.strip().isdigit() else text
    check_steps_per_run(value, source)
    return value


def check_steps_per_run(value, source):
    """Check a number of steps, or "auto".

    Raises:
        ConfigError: If it is out of range or not a whole number.
        ConfigTypeError: If it is of another type.
    """
    if value == "auto":
        return
    remedy = 'give a whole number of steps, 1 or more, or "auto"'
    if isinstance(value, str):
        raise ConfigError(f"{source} is {value!r}; {remedy}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); {remedy}"
        )
    if value < 1:
        raise ConfigError(f"{source} is {value}; {remedy}")


def check_async_checkpoint(value, source):
    """Check whether checkpoints are written while training goes on.

    Raises:
        ConfigTypeError: If it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); give True to write "
            "checkpoints while training goes on, or False"
        )


def _parse_async_checkpoint(text, source):
    if text not in ("0", "1"):
        raise ConfigError(
            f"{source} is {text!r}; give 1 to write checkpoints while training goes "
            "on, or 0"
        )
    return text == "1"


def parse_checkpoint_overhead(text, source):
    """Read a part of the wall time, given as text.

    Raises:
        ConfigError: If it is none; the message names `source`.
    """
    try:
        value = float(text)
    except ValueError:
        value = text
    check_checkpoint_overhead(value, source)
    return value


def check_checkpoint_overhead(value, source):
    """Check the part of the wall time that checkpoints may take.

    Raises:
        ConfigError: If it is out of range.
        ConfigTypeError: If it is no number.
    """
    if value is None:
        return
    remedy = "give the part of the time that checkpoints may take, such as 0.01"
    if isinstance(value, str):
        raise ConfigError(f"{source} is {value!r}; {remedy}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigTypeError(
            f"{source} is {value!r} ({type(value).__name__}); {remedy}"
        )
    if not 0 < value < 1:
        raise ConfigError(f"{source} is {value!r}, not between 0 and 1; {remedy}")


def check_progress(value, source):
    """Check how progress is shown.

    Raises:
        ConfigError: If it is none of the ways there are.
    """
    if value not in PROGRESS_MODES:
        raise ConfigError(f"{source} is {value!r}; give {', '.join(PROGRESS_MODES)}")


def _parse_progress(text, source):
    check_progress(text, source)
    return text


# Name of each option to its check, of (value, source); the message names the source.
CHECKS = {
    "steps_per_run": check_steps_per_run,
    "async_checkpoint": check_async_checkpoint,
    "checkpoint_overhead": check_checkpoint_overhead,
    "progress": check_progress,
}
_VARIABLES = {
    STEPS_PER_RUN_VARIABLE: ("steps_per_run", parse_steps_per_run),
    ASYNC_CHECKPOINT_VARIABLE: ("async_checkpoint", _parse_async_checkpoint),
    CHECKPOINT_OVERHEAD_VARIABLE: ("checkpoint_overhead", parse_checkpoint_overhead),
    PROGRESS_VARIABLE: ("progress", _parse_progress),
}

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
