"""Names under which TensorFlow itself had modules of the frozen package.

`tensorflow.python.estimator` was its name up to TensorFlow 1.13, and five modules for
TPUs were in `tensorflow.python.tpu`. TensorFlow 2.15 still ships them, each a copy of
the frozen module's names: what a program patches in a copy has no effect. Newer ones
ship none. Here each old name is the frozen module itself, on every TensorFlow.
"""

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

_OLD = "tensorflow.python.estimator"
_FROZEN = "tensorflow_estimator.python.estimator"
# Under both, as `from package import keras` goes by the name that the package has.
_RENAMED = {f"{package}.keras": f"{_FROZEN}.keras_lib" for package in (_OLD, _FROZEN)}
_TPU_NAMES = {
    f"tensorflow.python.tpu.{name}": f"{_FROZEN}.tpu.{name}"
    for name in ("error_handling", "tpu_config", "tpu_context", "tpu_estimator", "util")
}


def provide(_module):
    """Let `import tensorflow.python.estimator...` find the frozen package's modules."""
    # First, or the folder of the frozen package, which is where the old name leads,
    # would be searched for submodules, and each loaded a second time.
    sys.meta_path.insert(0, _Finder())


def replace_tpu_copies(_module):
    """Let the names under tensorflow.python.tpu find the frozen package's modules."""
    sys.meta_path.insert(0, _TPUFinder())


def provide_tpu(_module):
    """Do so where TensorFlow has no module of that name."""
    sys.meta_path.append(_TPUFinder())


class _Finder(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname in _RENAMED:
            frozen = _RENAMED[fullname]
        elif fullname == _OLD or fullname.startswith(f"{_OLD}."):
            frozen = _FROZEN + fullname.removeprefix(_OLD)
        else:
            return None
        if fullname == _OLD:
            # To look for it would import its parents, here, where no other thread can
            # import anything. For the names below it they are imported already.
            return ModuleSpec(fullname, _Alias(frozen))
        try:
            found = importlib.util.find_spec(frozen)
        except ModuleNotFoundError as error:
            if not f"{frozen}.".startswith(f"{error.name}."):
                raise  # what the parents import is missing, not the module
            found = None
        return found and ModuleSpec(fullname, _Alias(frozen))


class _TPUFinder(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        frozen = _TPU_NAMES.get(fullname)
        return frozen and ModuleSpec(fullname, _Alias(frozen))


class _Alias(Loader):
    """Puts the module of another name in the place of the one to be loaded."""

    def __init__(self, name):
        self._name = name

    def exec_module(self, module):
        sys.modules[module.__name__] = importlib.import_module(self._name)
