"""The log level of TensorFlow's C++ code, which hides uninformative startup lines."""

import glob
import importlib.abc
import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_NO_INFO = "1"  # warnings and errors pass
# Device files of NVIDIA's driver, of AMD's, and of either under WSL.
_DEVICES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")


class _BeforeTensorFlow(importlib.abc.MetaPathFinder):
    """An import hook that sets the log level just before TensorFlow is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> None:
        if fullname == "tensorflow":
            os.environ.setdefault(VARIABLE, _NO_INFO)


def quieten() -> None:
    """Make TensorFlow's C++ code log only warnings and errors, once it is imported.

    Nothing changes if the user has set the level, if TensorFlow is already imported, or
    if there is a GPU, because then the lines show how TensorFlow uses it.
    """
    is_waiting = any(isinstance(each, _BeforeTensorFlow) for each in sys.meta_path)
    if "tensorflow" in sys.modules or are_here() or is_waiting:
        return
    sys.meta_path.insert(0, _BeforeTensorFlow())


def are_here(patterns: Iterable[str] = _DEVICES) -> bool:
    """Return whether a device file of a GPU exists.

    Args:
        patterns: Glob patterns of such files.
    """
    return any(glob.glob(pattern) for pattern in patterns)
