"""A loader for a module that is another one, under a former name."""

import importlib
import sys
import types
from importlib.abc import Loader
from importlib.machinery import ModuleSpec


class Alias(Loader):
    """Loads a module by importing one of another name in its place.

    Args:
        name: The other name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Replace `module` in `sys.modules` with the other one."""
        # Not import_module, which is wrapped in this mode.
        found = importlib.__import__(self._name, fromlist=("*",))
        sys.modules[module.__name__] = found
