"""Whether TensorFlow 1 mode is wanted and on, and how it is turned on.

The mode belongs to a process and to all processes that it starts, which find it in
their environment. It cannot be turned off again: the program has the API by then.
"""

import os
import sys
import threading
from collections.abc import Mapping, MutableMapping

from estimator_runtime.config.options import parse_switch
from estimator_runtime.errors import CompatibilityError
from estimator_runtime.patching import patch
from estimator_runtime.patching.table import TF1_PATCHES
from estimator_runtime.tf1 import importer

VARIABLE = "ESTIMATOR_RUNTIME_TF1"
# Installed packages, separated by commas, that count as the program's own.
PACKAGES_VARIABLE = "ESTIMATOR_RUNTIME_TF1_PACKAGES"
# Whether variables are resource variables, and not TensorFlow 1's reference variables.
RESOURCES_VARIABLE = "ESTIMATOR_RUNTIME_TF1_RESOURCE_VARIABLES"

_lock = threading.RLock()
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


def turn_on(*, resource_variables: bool | None = None) -> None:
    """Turn TensorFlow 1 mode on, in this process and those that it will start.

    Calling it again does nothing.

    Args:
        resource_variables: Whether variables are resource variables; None for what the
            environment says.

    Raises:
        CompatibilityError: If TensorFlow has executed an op in this process already,
            which TensorFlow 1 would have put into a graph, if a module of the program
            has imported TensorFlow already, which stays TensorFlow 2 there, or if the
            mode is on with the other kind of variables.
        ConfigError: If the environment says neither.
    """
    global _is_on
    with _lock:
        are_resources = has_resource_variables()
        wanted = are_resources if resource_variables is None else resource_variables
        if _is_on and wanted != are_resources:
            raise CompatibilityError(
                "install: tf1_resource_variables was given after TensorFlow 1 mode had "
                f"been turned on; set {RESOURCES_VARIABLE} for the program instead"
            )
        if _is_on:
            return
        context = sys.modules.get("tensorflow.python.eager.context")
        used = context and context.context_safe()
        if used is not None and used._initialized:
            raise CompatibilityError(
                "TensorFlow 1 mode was asked for after TensorFlow has executed an op; "
                "call estimator_runtime.install(tf1=True) before `import tensorflow`, "
                "or use: estimator-runtime run --tf1"
            )
        if module := importer.program_with_tensorflow_2():
            raise CompatibilityError(
                f"TensorFlow 1 mode was asked for after {module} has imported "
                "TensorFlow 2; call estimator_runtime.install(tf1=True) before `import "
                "tensorflow`, or use: estimator-runtime run --tf1"
            )
        patch.schedule(TF1_PATCHES)
        os.environ[VARIABLE] = "1"
        os.environ[RESOURCES_VARIABLE] = str(int(wanted))
        packages = os.environ.get(PACKAGES_VARIABLE, "").split(",")
        importer.answer_program(frozenset(packages) - {""})
        _is_on = True
