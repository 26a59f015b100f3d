"""Where code comes from: the program, an installed package, Python or a framework."""

from __future__ import annotations

import enum
import os
import sysconfig
from types import FrameType

_FRAMEWORKS = frozenset(
    ("estimator_runtime", "keras", "tensorflow", "tensorflow_estimator", "tf_keras")
)
_OURS = os.path.join(os.path.dirname(__file__), "")
_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")


class Origin(enum.Enum):
    """Where code comes from."""

    PROGRAM = "a file of the program"
    GENERATED = "a file that AutoGraph has written"
    UNNAMED = "text that has no file, such as that of exec"
    INSTALLED = "an installed package"
    PYTHON = "Python and its library"
    FRAMEWORK = "TensorFlow, Keras or this package"


# A file in which the user finds code of the program, perhaps as AutoGraph wrote it.
OF_PROGRAM = frozenset((Origin.PROGRAM, Origin.GENERATED))
# All that may be the program: `python -m` runs an installed package.
MAY_BE_PROGRAM = OF_PROGRAM | {Origin.UNNAMED, Origin.INSTALLED}


def of_file(path: str, module: str = "") -> Origin:
    """Return the origin of code.

    Args:
        path: Its file.
        module: The full name of its module, where it is known. Code that AutoGraph has
            generated keeps the module of the code that it was generated from.
    """
    # A module of this package may be the `__main__` of its process.
    if module.partition(".")[0] in _FRAMEWORKS or path.startswith(_OURS):
        return Origin.FRAMEWORK
    if "__autograph_generated_file" in path:
        return Origin.GENERATED
    if "/site-packages/" in path or "/dist-packages/" in path:
        return Origin.INSTALLED
    if path.startswith((_LIBRARY, "<frozen ")):
        return Origin.PYTHON
    return Origin.UNNAMED if path.startswith("<") else Origin.PROGRAM


def of_frame(frame: FrameType) -> Origin:
    """Return the origin of the code that a frame runs."""
    return of_file(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))
