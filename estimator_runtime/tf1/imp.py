"""The functions of Python's module `imp`, removed in 3.12, that programs use."""

import importlib
import importlib.util
import sys
import types
from importlib.machinery import SourceFileLoader

__all__ = ["load_source", "new_module", "reload"]

reload = importlib.reload


def new_module(name: str) -> types.ModuleType:
    """Return a new empty module, which is not in `sys.modules`."""
    return types.ModuleType(name)


def load_source(name: str, pathname: str, file: object = None) -> types.ModuleType:
    """Load a module from a source file, also if it is loaded already.

    Args:
        name: The name that the module gets.
        pathname: Path of the file.
        file: Ignored, as by Python 3.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    loader = SourceFileLoader(name, pathname)
    spec = importlib.util.spec_from_file_location(name, pathname, loader=loader)
    if spec is None:
        raise ImportError(f"{pathname} cannot be loaded as {name}", name=name)
    module = sys.modules.get(name)
    if module is None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
    else:
        module.__spec__ = spec
    loader.exec_module(module)
    return module
