"""What an import of the frozen package that has failed leaves behind."""

import sys

_PACKAGE = "tensorflow_estimator"


def drop():
    """Forget modules of the frozen package whose parent is not there.

    On TensorFlow >= 2.16 an import of it fails before `install()`. Python then forgets
    the modules that failed, the package among them, and keeps those that they had
    imported by then. The next import would take these, with what they knew of the
    others, and fail in its midst.
    """
    if _PACKAGE in sys.modules:
        return
    for name in list(sys.modules):
        if name.startswith(f"{_PACKAGE}."):
            del sys.modules[name]
