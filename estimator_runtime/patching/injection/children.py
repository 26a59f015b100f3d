"""The runtime in the processes that this one starts: children and helper processes.

A forked child inherits the runtime. Any other child is a new interpreter, in which
`import tensorflow` would not provide `tf.estimator`. It finds the runtime through its
environment: PYTHONPATH leads to `startup/sitecustomize.py`, which acts only in the same
Python installation.
"""

import os
import pathlib
import sys
from collections.abc import MutableMapping

# Children search this folder for `sitecustomize`. In a helper process, Python puts it
# before the standard library.
STARTUP = str(pathlib.Path(__file__).parent / "startup")
VARIABLE = "ESTIMATOR_RUNTIME_CHILDREN"


def arm_environment(environ: MutableMapping[str, str]) -> None:
    """Make interpreters that inherit `environ` call `install()` when they need it.

    Args:
        environ: `os.environ`, or a dict that becomes the environment of a child.
    """
    path = environ.get("PYTHONPATH")
    if STARTUP not in (path or "").split(os.pathsep):
        environ["PYTHONPATH"] = os.pathsep.join([STARTUP, path] if path else [STARTUP])
    environ[VARIABLE] = sys.prefix


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
