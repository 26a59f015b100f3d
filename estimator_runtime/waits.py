"""How long tasks wait, for each other or for an end, where TensorFlow has no setting.

Standard library only: the launcher sets, for the tasks it starts, what they read.
"""

import math
import os

from estimator_runtime.errors import ConfigError

# Seconds in which TensorFlow has to be imported, on a slow machine.
IMPORT_SECS = 120.0
# Seconds that each worker waits longer than the one before, and the first one too.
START_DELAY_VARIABLE = "ESTIMATOR_RUNTIME_START_DELAY_SECS"
# Seconds between two looks of a worker whether the chief has initialized the model.
RECOVERY_WAIT_VARIABLE = "ESTIMATOR_RUNTIME_RECOVERY_WAIT_SECS"
# Seconds from SIGTERM to the end of a step, after which a training is not waited for.
STOP_GRACE_VARIABLE = "ESTIMATOR_RUNTIME_STOP_GRACE_SECS"
# Seconds that a ps stays after SIGTERM, while a trainer is there.
PS_GRACE_VARIABLE = "ESTIMATOR_RUNTIME_PS_GRACE_SECS"
# Seconds without an answer of a task that a training needs, before it is given up.
PEER_TIMEOUT_VARIABLE = "ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS"
# Seconds without a step of a training after which its task is named, with its stack.
STALL_VARIABLE = "ESTIMATOR_RUNTIME_STALL_SECS"
VARIABLES = (
    START_DELAY_VARIABLE,
    RECOVERY_WAIT_VARIABLE,
    STOP_GRACE_VARIABLE,
    PS_GRACE_VARIABLE,
    PEER_TIMEOUT_VARIABLE,
    STALL_VARIABLE,
)
# For tasks that a launcher starts together: none of TensorFlow's waits is needed.
LOCAL_WAITS = {START_DELAY_VARIABLE: "0", RECOVERY_WAIT_VARIABLE: "0.5"}


def check(environ):
    """Check all variables, at the start: most are read where a training waits.

    Raises:
        ConfigError: If one is no number of seconds.
    """
    for name in VARIABLES:
        _seconds(environ, name, None)


def start_delay_secs(default_secs, environ=os.environ):
    """Give the start delay by which workers differ: TensorFlow's, given, if unset.

    Raises:
        ConfigError: If the variable is no number of seconds.
    """
    return _seconds(environ, START_DELAY_VARIABLE, default_secs)


def recovery_wait_secs(environ=os.environ):
    """Give the seconds between two looks: 30, as TensorFlow's, if unset.

    Raises:
        ConfigError: If the variable is no number of seconds.
    """
    return _seconds(environ, RECOVERY_WAIT_VARIABLE, 30.0)


def stop_grace_secs(environ=os.environ):
    """Give the seconds that a training has to end its step after SIGTERM: 30 if unset.

    Raises:
        ConfigError: If the variable is no number of seconds.
    """
    return _seconds(environ, STOP_GRACE_VARIABLE, 30.0)


def ps_grace_secs(environ=os.environ):
    """Give the seconds that a ps without our launcher stays for trainers: 0 if unset.

    Raises:
        ConfigError: If the variable is no number of seconds.
    """
    return _seconds(environ, PS_GRACE_VARIABLE, 0.0)


def peer_timeout_secs(environ=os.environ):
    """Give the seconds for which a needed task may be silent: 300 if unset.

    Raises:
        ConfigError: If the variable is no number of seconds.
    """
    return _seconds(environ, PEER_TIMEOUT_VARIABLE, 300.0)


def stall_secs(environ=os.environ):
    """Return the seconds without a step after which a task is named: 300 if unset.

    0 is for never.

    Raises:
        ConfigError: If the variable is no number of seconds.
    """
    return _seconds(environ, STALL_VARIABLE, 300.0)


def _seconds(environ, name, default):
    text = environ.get(name)
    return default if text is None else seconds(text, name)


def seconds(text, where):
    """Give the number of seconds that a text has.

    Raises:
        ConfigError: If it is none, or less than 0; `where` says who gave it.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ConfigError(f"{where} is {text!r}; give a number of seconds, 0 or more")
    return value
