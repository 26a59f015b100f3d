"""Whether TensorFlow 1 mode is wanted, and whether it is on.

The mode belongs to a process and to all processes that it starts, which find it in
their environment. `tf1.mode` turns it on.
"""

import os
from collections.abc import Mapping, MutableMapping

from estimator_runtime.config.options import parse_switch

VARIABLE = "ESTIMATOR_RUNTIME_TF1"
# Installed packages, separated by commas, that count as the program's own.
PACKAGES_VARIABLE = "ESTIMATOR_RUNTIME_TF1_PACKAGES"
# Whether variables are resource variables, and not TensorFlow 1's reference variables.
RESOURCES_VARIABLE = "ESTIMATOR_RUNTIME_TF1_RESOURCE_VARIABLES"

_is_on = False


def is_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether an environment asks for TensorFlow 1 mode.

    Raises:
        ConfigError: If the variable is neither 0 nor 1.
    """
    text = environ.get(VARIABLE, "0")
    return parse_switch(text, VARIABLE, "for the API of TensorFlow 1")


def has_resource_variables(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether an environment asks for resource variables in this mode.

    Raises:
        ConfigError: If the variable is neither 0 nor 1.
    """
    text = environ.get(RESOURCES_VARIABLE, "0")
    return parse_switch(text, RESOURCES_VARIABLE, "for resource variables")


def is_on() -> bool:
    """Return whether this process is in TensorFlow 1 mode."""
    return _is_on


def set_on() -> None:
    """Note that this process is in TensorFlow 1 mode; it stays so."""
    global _is_on
    _is_on = True


def add_package(name: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Make an installed package count as the program's own, here and in children.

    Args:
        name: The package, or any module in it.
        environ: The environment that carries it.
    """
    package = name.partition(".")[0]
    known = [each for each in environ.get(PACKAGES_VARIABLE, "").split(",") if each]
    if package not in known:
        environ[PACKAGES_VARIABLE] = ",".join([*known, package])
