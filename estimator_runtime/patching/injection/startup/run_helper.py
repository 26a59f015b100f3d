"""Script that runs a module of this package in a separate process, in any folder.

`python -m` and `python -c` put the current folder before the standard library on
sys.path: in /tmp, another user's json.py would run. `python FILE` puts the folder of
FILE there, which is this one. See `estimator_runtime.patching.injection.children`.
"""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_PACKAGE = "estimator_runtime"


def main(module: str, *arguments: str) -> int:
    """Call the `main` of `module` with a list of the arguments; return its result."""
    if _PACKAGE not in sys.modules:
        _import_package(
            __file__.rpartition(f"/{_PACKAGE}/patching/injection/startup/")[0]
        )
    return import_module(module).main(list(arguments))


def _import_package(folder: str) -> None:
    """Import the package from `folder`; sys.path may have another one, or none."""
    spec = PathFinder.find_spec(_PACKAGE, [folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} has no package {_PACKAGE}; install it again")
    sys.modules[_PACKAGE] = package = module_from_spec(spec)
    spec.loader.exec_module(package)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
