"""Old names of the frozen package's modules in TensorFlow.

Up to TensorFlow 1.13 the package was `tensorflow.python.estimator`, and five modules
for TPUs were in `tensorflow.python.tpu`. TensorFlow 2.15 has modules of these names.
Each is a copy of the frozen module's names, so patching one has no effect. Newer
versions have none of them. The finders of this module make each old name the frozen
module itself, on every TensorFlow.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_OLD = "tensorflow.python.estimator"
_FROZEN = "tensorflow_estimator.python.estimator"
# In both packages, because `from package import keras` uses the package's `__name__`.
_RENAMED = {f"{package}.keras": f"{_FROZEN}.keras_lib" for package in (_OLD, _FROZEN)}
_TPU_NAMES = {
    f"tensorflow.python.tpu.{name}": f"{_FROZEN}.tpu.{name}"
    for name in ("error_handling", "tpu_config", "tpu_context", "tpu_estimator", "util")
}


def provide(_module: ModuleType) -> None:
    """Make imports from tensorflow.python.estimator find the frozen modules."""
    # First in the list. The old name leads to the folder of the frozen package, so the
    # other finders would find its submodules there and load each a second time.
    sys.meta_path.insert(0, _Finder(_spec))


def replace_tpu_copies(_module: ModuleType) -> None:
    """Make imports from tensorflow.python.tpu find the frozen modules."""
    sys.meta_path.insert(0, _Finder(_tpu_spec))


def provide_tpu(_module: ModuleType) -> None:
    """Same as `replace_tpu_copies`, but only for names that TensorFlow lacks."""
    sys.meta_path.append(_Finder(_tpu_spec))


class _Finder(MetaPathFinder):
    """Finds modules by a function that returns the spec for a name, or None."""

    def __init__(self, find: Callable[[str], ModuleSpec | None]) -> None:
        self._find = find

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of an alias, or None for other names."""
        return self._find(fullname)


def _spec(fullname: str) -> ModuleSpec | None:
    if fullname in _RENAMED:
        frozen = _RENAMED[fullname]
    elif fullname == _OLD or fullname.startswith(f"{_OLD}."):
        frozen = _FROZEN + fullname.removeprefix(_OLD)
    else:
        return None
    if fullname == _OLD:
        # Not find_spec, which would import the parent packages now, while no other
        # thread can import anything. For submodules they are imported already.
        return ModuleSpec(fullname, _Alias(frozen))
    try:
        found = importlib.util.find_spec(frozen)
    except ModuleNotFoundError as error:
        if not f"{frozen}.".startswith(f"{error.name}."):
            raise  # the parents import something that is missing
        return None
    return found and ModuleSpec(fullname, _Alias(frozen))


def _tpu_spec(fullname: str) -> ModuleSpec | None:
    frozen = _TPU_NAMES.get(fullname)
    return ModuleSpec(fullname, _Alias(frozen)) if frozen else None


class _Alias(Loader):
    """Loads a module by importing one of another name in its place."""

    def __init__(self, name: str) -> None:
        self._name = name

    def exec_module(self, module: ModuleType) -> None:
        """Replace `module` in `sys.modules` with the other one."""
        sys.modules[module.__name__] = importlib.import_module(self._name)
