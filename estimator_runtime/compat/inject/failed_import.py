"""Cleanup after a failed import of the frozen package."""

import sys

_PACKAGE = "tensorflow_estimator"


def drop() -> None:
    """Remove the frozen package's modules from `sys.modules` if the package is missing.

    On TensorFlow >= 2.16 an import of the package fails before `install()`. Python then
    forgets the modules that failed, the package among them, and keeps those that they
    had already imported. The next import would use the kept modules, which refer to the
    forgotten ones, and fail halfway.
    """
    if _PACKAGE in sys.modules:
        return
    for name in list(sys.modules):
        if name.startswith(f"{_PACKAGE}."):
            del sys.modules[name]
