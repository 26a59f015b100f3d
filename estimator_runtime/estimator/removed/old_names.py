"""Old names of the frozen package's modules in TensorFlow.

Up to TensorFlow 1.13 the package was `tensorflow.python.estimator`, and five modules
for TPUs were in `tensorflow.python.tpu`. TensorFlow 2.15 has modules of these names.
Each is a copy of the frozen module's names, so patching one has no effect. Newer
versions have none of them. The finder of this module makes each old name the frozen
module itself, on every TensorFlow.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_OLD = "tensorflow.python.estimator"
_FROZEN = "tensorflow_estimator.python.estimator"
_RENAMED = {
    # In both packages, because `from package import keras` uses the package's __name__.
    f"{_OLD}.keras": f"{_FROZEN}.keras_lib",
    f"{_FROZEN}.keras": f"{_FROZEN}.keras_lib",
    **{
        f"tensorflow.python.tpu.{name}": f"{_FROZEN}.tpu.{name}"
        for name in (
            "error_handling",
            "tpu_config",
            "tpu_context",
            "tpu_estimator",
            "util",
        )
    },
}


def provide(_module: ModuleType) -> None:
    """Make imports of the old names find the frozen modules."""
    # First in the list. The old name leads to the folder of the frozen package, so the
    # other finders would find its submodules there and load each a second time.
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the modules with old names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of an alias, or None for other names."""
        frozen = _RENAMED.get(fullname)
        if frozen is None and f"{fullname}.".startswith(f"{_OLD}."):
            frozen = _FROZEN + fullname.removeprefix(_OLD)
        if frozen is None:
            return None
        # The package is not looked for: that would import its parents now, while no
        # other thread can import anything. For submodules they are imported already.
        if not fullname.startswith(f"{_OLD}.") or _exists(frozen):
            return ModuleSpec(fullname, _Alias(frozen))
        return None


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            return False
        raise  # the parents import something that is missing


class _Alias(Loader):
    """Loads a module by importing one of another name in its place."""

    def __init__(self, name: str) -> None:
        self._name = name

    def exec_module(self, module: ModuleType) -> None:
        """Replace `module` in `sys.modules` with the other one."""
        sys.modules[module.__name__] = importlib.import_module(self._name)
