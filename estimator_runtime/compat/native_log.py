"""TensorFlow's C++ lines about its start, on a machine where they tell nothing.

Its level is read from the environment while TensorFlow is imported. It is set right
before that, so that a script that sets it first, in whichever way, is obeyed.
"""

import importlib.abc
import os
import sys

from estimator_runtime import gpus

VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_NO_INFO = "1"  # warnings and errors pass


class _BeforeTensorFlow(importlib.abc.MetaPathFinder):
    """Finds nothing, but is asked for TensorFlow before it is imported."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "tensorflow":
            os.environ.setdefault(VARIABLE, _NO_INFO)


def quieten():
    """Let TensorFlow's C++ half log warnings and errors only, once it is imported.

    Nothing is changed where the user has set the level, where there is a GPU, of which
    the lines tell what became of it, and where TensorFlow is imported already.
    """
    is_waiting = any(isinstance(each, _BeforeTensorFlow) for each in sys.meta_path)
    if "tensorflow" in sys.modules or gpus.are_here() or is_waiting:
        return
    sys.meta_path.insert(0, _BeforeTensorFlow())
