"""Timeouts and delays of tasks for which TensorFlow has no setting.

Standard library only, because the launcher sets these variables for the tasks that it
starts.
"""

import math
import os
from collections.abc import Mapping
from typing import TypeVar

from estimator_runtime.errors import ConfigError

_Default = TypeVar("_Default", float, None)

# Seconds that the import of TensorFlow may take on a slow machine.
IMPORT_SECS = 120.0
# Seconds by which the start delay of each worker exceeds that of the one before it. The
# first worker waits that long too.
START_DELAY_VARIABLE = "ESTIMATOR_RUNTIME_START_DELAY_SECS"
# Seconds between two checks of a worker whether the chief has initialized the model.
RECOVERY_WAIT_VARIABLE = "ESTIMATOR_RUNTIME_RECOVERY_WAIT_SECS"
# Seconds that a training has after SIGTERM to end its step.
STOP_GRACE_VARIABLE = "ESTIMATOR_RUNTIME_STOP_GRACE_SECS"
# Seconds that a ps stays up after SIGTERM while a trainer is still running.
PS_GRACE_VARIABLE = "ESTIMATOR_RUNTIME_PS_GRACE_SECS"
# Seconds without an answer of a task that a training needs, until the latter gives up.
PEER_TIMEOUT_VARIABLE = "ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS"
# Seconds without a training step after which the task is reported, with its stack.
STALL_VARIABLE = "ESTIMATOR_RUNTIME_STALL_SECS"
VARIABLES = (
    START_DELAY_VARIABLE,
    RECOVERY_WAIT_VARIABLE,
    STOP_GRACE_VARIABLE,
    PS_GRACE_VARIABLE,
    PEER_TIMEOUT_VARIABLE,
    STALL_VARIABLE,
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
        _seconds(environ, name, None)


def start_delay_secs(
    default_secs: float, environ: Mapping[str, str] = os.environ
) -> float:
    """Return the seconds by which the start delays of consecutive workers differ.

    Args:
        default_secs: TensorFlow's delay, used if the variable is unset.
        environ: The environment.

    Raises:
        ConfigError: If the variable is not a valid number of seconds.
    """
    return _seconds(environ, START_DELAY_VARIABLE, default_secs)


def recovery_wait_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds between two checks for an initialized model.

    The default is 30, as in TensorFlow.

    Raises:
        ConfigError: If the variable is not a valid number of seconds.
    """
    return _seconds(environ, RECOVERY_WAIT_VARIABLE, 30.0)


def stop_grace_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a training has after SIGTERM to end its step.

    The default is 30.

    Raises:
        ConfigError: If the variable is not a valid number of seconds.
    """
    return _seconds(environ, STOP_GRACE_VARIABLE, 30.0)


def ps_grace_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a ps stays up for trainers after SIGTERM.

    This applies without our launcher. The default is 0.

    Raises:
        ConfigError: If the variable is not a valid number of seconds.
    """
    return _seconds(environ, PS_GRACE_VARIABLE, 0.0)


def peer_timeout_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds that a task which a training needs may stay silent.

    The default is 300.

    Raises:
        ConfigError: If the variable is not a valid number of seconds.
    """
    return _seconds(environ, PEER_TIMEOUT_VARIABLE, 300.0)


def stall_secs(environ: Mapping[str, str] = os.environ) -> float:
    """Return the seconds without a training step after which a task is reported.

    The default is 300, and 0 means never.

    Raises:
        ConfigError: If the variable is not a valid number of seconds.
    """
    return _seconds(environ, STALL_VARIABLE, 300.0)


def _seconds(
    environ: Mapping[str, str], name: str, default: _Default
) -> float | _Default:
    text = environ.get(name)
    return default if text is None else seconds(text, name)


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
