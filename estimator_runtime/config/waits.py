"""Timeouts and delays of tasks for which TensorFlow has no setting.

Each function returns the seconds that its environment variable gives, or a default, and
raises a ConfigError if the variable is not a number of seconds, 0 or more.

Standard library only, because the launcher sets these variables for the tasks that it
starts.
"""

import math
import os
from collections.abc import Mapping

from estimator_runtime.errors import ConfigError

# Seconds that the import of TensorFlow may take on a slow machine.
IMPORT_SECS = 120.0
START_DELAY_VARIABLE = "ESTIMATOR_RUNTIME_START_DELAY_SECS"
RECOVERY_WAIT_VARIABLE = "ESTIMATOR_RUNTIME_RECOVERY_WAIT_SECS"
STOP_GRACE_VARIABLE = "ESTIMATOR_RUNTIME_STOP_GRACE_SECS"
PS_GRACE_VARIABLE = "ESTIMATOR_RUNTIME_PS_GRACE_SECS"
PEER_TIMEOUT_VARIABLE = "ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS"
STALL_VARIABLE = "ESTIMATOR_RUNTIME_STALL_SECS"
LAST_STEPS_VARIABLE = "ESTIMATOR_RUNTIME_LAST_STEPS_SECS"
VARIABLES = (
    START_DELAY_VARIABLE,
    RECOVERY_WAIT_VARIABLE,
    STOP_GRACE_VARIABLE,
    PS_GRACE_VARIABLE,
    PEER_TIMEOUT_VARIABLE,
    STALL_VARIABLE,
    LAST_STEPS_VARIABLE,
)
# For tasks that a launcher starts together, which need none of TensorFlow's delays.
LOCAL_WAITS = {START_DELAY_VARIABLE: "0", RECOVERY_WAIT_VARIABLE: "0.5"}


def check(environ: Mapping[str, str]) -> None:
    """Check all variables.

    Call this at the start, because most are read only once a training waits.

    Raises:
        ConfigError: If a variable is not a valid number of seconds.
    """
    for name in VARIABLES:
        _read(environ, name, 0.0)


def start_delay_secs(
    default_secs: float, environ: Mapping[str, str] = os.environ
) -> float:
    """Return the seconds by which the start delays of consecutive workers differ.

    The first worker waits that long too. `default_secs` is TensorFlow's delay.
    """
    return _read(environ, START_DELAY_VARIABLE, default_secs)


def recovery_wait_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds between two checks whether the chief is ready (30)."""
    return _read(environ, RECOVERY_WAIT_VARIABLE, 30.0)


def stop_grace_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a training has after SIGTERM to end its step (30)."""
    return _read(environ, STOP_GRACE_VARIABLE, 30.0)


def ps_grace_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a ps without our launcher outlives SIGTERM (0).

    It stays up for that long while a trainer is still running.
    """
    return _read(environ, PS_GRACE_VARIABLE, 0.0)


def peer_timeout_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a task which a training needs may stay silent (300)."""
    return _read(environ, PEER_TIMEOUT_VARIABLE, 300.0)


def stall_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds without a step after which a task is reported (300).

    0 means never. The task then writes its stacks to standard error.
    """
    return _read(environ, STALL_VARIABLE, 300.0)


def last_steps_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a chief waits for other trainers at its end (300)."""
    return _read(environ, LAST_STEPS_VARIABLE, 300.0)


def _read(environ: Mapping[str, str], name: str, default: float) -> float:
    return seconds(environ[name], name) if name in environ else default


def seconds(text: str, where: str) -> float:
    """Return the number of seconds that a text contains.

    Args:
        text: The text.
        where: Where the text comes from, for the error message.

    Raises:
        ConfigError: If it is not a finite number, or less than 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ConfigError(f"{where} is {text!r}; give a number of seconds, 0 or more")
    return value
