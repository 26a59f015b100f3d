"""The runtime in the processes that this one starts: children and helper processes.

A forked child inherits the runtime. Any other child is a new interpreter, in which
`import tensorflow` would not provide `tf.estimator`:

* A child of `multiprocessing` receives the runtime with the pickled description of its
  parent. That works with any environment variables and interpreter options.
* A child that the program starts itself finds the runtime through its environment.
  PYTHONPATH leads to `startup/sitecustomize.py`, which acts only in the same Python
  installation.
"""

import os
import pathlib
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

from estimator_runtime.patching import patch
from estimator_runtime.patching.table import TF1_PATCHES

# Children search this folder for `sitecustomize`. In a helper process, Python puts it
# before the standard library.
STARTUP = str(pathlib.Path(__file__).parent / "startup")
VARIABLE = "ESTIMATOR_RUNTIME_CHILDREN"

# The code that a child of multiprocessing executes. At that time the child does not
# have its parent's sys.path. A child whose Python lacks this package is left as it is.
_INSTALL = """
import sys
sys.path[:] = path
try:
    from estimator_runtime.patching import install
except ImportError:
    pass
else:
    install(tf1=tf1)
"""


def arm_environment(environ: MutableMapping[str, str]) -> None:
    """Make interpreters that inherit `environ` call `install()` when they need it.

    Args:
        environ: `os.environ`, or a dict that becomes the environment of a child.
    """
    path = environ.get("PYTHONPATH")
    if STARTUP not in (path or "").split(os.pathsep):
        environ["PYTHONPATH"] = os.pathsep.join([STARTUP, path] if path else [STARTUP])
    environ[VARIABLE] = sys.prefix


def arm_spawn(spawn: Any) -> None:
    """Make children of `multiprocessing` call `install()` before anything else.

    Args:
        spawn: The module `multiprocessing.spawn`.
    """
    describe = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        # A child ignores keys that it does not know, but it unpickles their values.
        description = describe(name)
        path = list(description.get("sys_path", sys.path))
        return {**description, "estimator_runtime": _InstallWhenUnpickled(path)}

    spawn.get_preparation_data = get_preparation_data


class _InstallWhenUnpickled:
    """An object that installs the runtime in the process that unpickles it.

    Its pickle refers to built-in names only, because the child may not be able to
    import this package before it has `path`, its parent's sys.path.
    """

    def __init__(self, path: list[str]) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str, dict[str, Any]]]:
        # None for a process without the mode, which a child may turn on for itself.
        tf1 = TF1_PATCHES[0] in patch.scheduled() or None
        return exec, (_INSTALL, {"path": self._path, "tf1": tf1})


def helper_command(module: str, *arguments: str) -> list[str]:
    """Return a command that calls `main([*arguments])` of a module of this package.

    Nothing is imported from the current folder of the command, which `python -m` would
    search first. A program that this process then runs with `script` has the same
    sys.path as with plain Python.

    Args:
        module: Full name of the module. The result of its `main` is the exit status of
            the process.
        *arguments: The arguments of `main`.
    """
    return [sys.executable, f"{STARTUP}/run_helper.py", module, *arguments]
