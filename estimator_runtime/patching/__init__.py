"""Patches of TensorFlow and the frozen package, and the processes that inherit them.

`install()` checks the installed versions, raises an error if they cannot work, and
schedules the patches. Each patch is applied right after the import of its module. So a
program may still set TensorFlow's environment variables before its own `import
tensorflow`, and pays nothing if it never imports TensorFlow.
"""

import os
import sys
import threading

from estimator_runtime.config import tf1_mode
from estimator_runtime.errors import ConfigError
from estimator_runtime.patching import patch, table
from estimator_runtime.patching.injection import children
from estimator_runtime.tf_internals import legacy_keras, versions

_lock = threading.RLock()
_installed = False


def install(
    *, tf1: bool | None = None, tf1_resource_variables: bool | None = None
) -> None:
    """Install the patches. The arguments and errors are `estimator_runtime.install`'s.

    Args:
        tf1: See there.
        tf1_resource_variables: See there.

    Raises:
        CompatibilityError: See there.
        ConfigError: See there.
    """
    _install()
    if tf1_mode.is_wanted() if tf1 is None else tf1:
        table.turn_on_tf1(resource_variables=tf1_resource_variables)
    elif tf1_resource_variables:
        raise ConfigError(
            "install: tf1_resource_variables is True without TensorFlow 1 mode; add "
            "tf1=True, or leave it out"
        )


def _install() -> None:
    global _installed
    patch.check()
    if _installed:
        return
    # Without the lock, because the thread that imports TensorFlow may need it.
    versions.wait_for_import()
    with _lock:
        if _installed:
            return
        tensorflow = versions.check_installed()
        legacy_keras.choose_legacy(tensorflow)
        _forget_failed_import()
        patch.schedule(
            [each for each in table.PATCHES if each.applies_to(tensorflow)],
            # On an untested TensorFlow a failed patch must not break programs that do
            # not use Estimators.
            are_required=tensorflow <= versions.NEWEST_TESTED,
        )
        children.arm_environment(os.environ)
        _installed = True


def _forget_failed_import() -> None:
    """Remove the frozen package's modules from `sys.modules` if the package is missing.

    On TensorFlow >= 2.16 an import of the package fails before `install()`. Python then
    forgets the modules that failed, the package among them, and keeps those that they
    had already imported. The next import would use the kept modules, which refer to the
    forgotten ones, and fail halfway.
    """
    if "tensorflow_estimator" not in sys.modules:
        for name in list(sys.modules):
            if name.startswith("tensorflow_estimator."):
                del sys.modules[name]
