"""What is hidden of the log of TensorFlow's C++ code, which bypasses Python's."""

import glob
import importlib.abc
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

from estimator_runtime.output import relay

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


def quieten(environ: Mapping[str, str]) -> None:
    """Hide what TensorFlow's C++ code logs as INFO, and its useless warnings.

    Nothing changes if the user has set the level. If there is a GPU, the lines show how
    TensorFlow uses it: then only the useless ones are hidden. The level can only be set
    before TensorFlow is imported.

    Args:
        environ: The environment variables of this process.
    """
    if VARIABLE in environ:
        return
    expects_gpu = has_gpu()
    if "tensorflow" not in sys.modules and not expects_gpu:
        sys.meta_path.insert(0, _BeforeTensorFlow())
    # When the first process of a container ends, the kernel ends all others at once.
    # The last words of a crash would be lost.
    if os.getpid() != 1:
        relay.start(task=None, hides_noise=True, expects_gpu=expects_gpu)


def has_gpu(patterns: Iterable[str] = _DEVICES) -> bool:
    """Return whether a device file of a GPU exists.

    Args:
        patterns: Glob patterns of such files.
    """
    return any(glob.glob(pattern) for pattern in patterns)
