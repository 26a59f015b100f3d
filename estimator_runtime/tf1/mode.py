"""Turns TensorFlow 1 mode on.

It cannot be turned off again: the program has the API by then.
"""

import os
import sys
import threading

from estimator_runtime.config import tf1_mode
from estimator_runtime.errors import CompatibilityError
from estimator_runtime.patching import patch
from estimator_runtime.patching.table import TF1_PATCHES
from estimator_runtime.tf1 import importer

_lock = threading.RLock()


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
    with _lock:
        are_resources = tf1_mode.has_resource_variables()
        wanted = are_resources if resource_variables is None else resource_variables
        if tf1_mode.is_on() and wanted != are_resources:
            raise CompatibilityError(
                "install: tf1_resource_variables was given after TensorFlow 1 mode had "
                f"been turned on; set {tf1_mode.RESOURCES_VARIABLE} for the program "
                "instead"
            )
        if tf1_mode.is_on():
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
        os.environ[tf1_mode.VARIABLE] = "1"
        os.environ[tf1_mode.RESOURCES_VARIABLE] = str(int(wanted))
        packages = os.environ.get(tf1_mode.PACKAGES_VARIABLE, "").split(",")
        importer.answer_program(frozenset(packages) - {""})
        tf1_mode.set_on()
